//! One of something per lane, and the queues that carry a lane.

use std::str::FromStr;

use sendslot_domain::Lane;

/// One `T` for each lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByLane<T> {
    /// The priority lane's.
    pub priority: T,
    /// The bulk lane's.
    pub bulk: T,
}

impl<T> ByLane<T> {
    /// The one of `lane`.
    pub const fn get(&self, lane: Lane) -> &T {
        match lane {
            Lane::Priority => &self.priority,
            Lane::Bulk => &self.bulk,
        }
    }

    /// The one of `lane`, to change.
    pub const fn get_mut(&mut self, lane: Lane) -> &mut T {
        match lane {
            Lane::Priority => &mut self.priority,
            Lane::Bulk => &mut self.bulk,
        }
    }
}

/// An SQS queue, by its URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    url: String,
}

/// The text is no queue URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no queue URL")]
pub struct BadQueueUrl;

impl Queue {
    /// What SQS calls address it by.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Its name: the URL's last part.
    #[must_use]
    pub fn name(&self) -> &str {
        self.url.rsplit('/').next().unwrap_or_default()
    }
}

impl FromStr for Queue {
    type Err = BadQueueUrl;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let rest = text
            .strip_prefix("https://")
            .or_else(|| text.strip_prefix("http://"))
            .ok_or(BadQueueUrl)?;
        let (_, path) = rest.split_once('/').ok_or(BadQueueUrl)?;
        let name = path.rsplit('/').next().unwrap_or_default();
        if name.is_empty() || text.contains(char::is_whitespace) {
            return Err(BadQueueUrl);
        }
        Ok(Self {
            url: text.to_owned(),
        })
    }
}

/// A record came from a queue that the settings don't name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "queue {0:?} belongs to no lane: the event source mapping and the queue URLs in the \
     environment must name the same queues"
)]
pub struct UnknownQueue(pub String);

impl ByLane<Queue> {
    /// The lane whose queue an event source ARN names. Names are compared, not accounts or
    /// regions: the function may run beside an emulator whose URLs differ.
    ///
    /// # Errors
    /// When neither queue has that name.
    pub fn lane_of(&self, event_source_arn: &str) -> Result<Lane, UnknownQueue> {
        let name = event_source_arn.rsplit(':').next().unwrap_or_default();
        Lane::ALL
            .into_iter()
            .find(|lane| self.get(*lane).name() == name)
            .ok_or_else(|| UnknownQueue(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queues() -> ByLane<Queue> {
        let queue = |text: &str| text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
        ByLane {
            priority: queue("https://sqs.eu-west-1.amazonaws.com/123456789012/s-priority-intake"),
            bulk: queue("http://127.0.0.1:4566/000000000000/s-bulk-intake"),
        }
    }

    #[test]
    fn a_record_belongs_to_the_lane_whose_queue_it_came_from() {
        let arn = |name: &str| format!("arn:aws:sqs:eu-west-1:123456789012:{name}");
        assert_eq!(
            queues().lane_of(&arn("s-priority-intake")),
            Ok(Lane::Priority)
        );
        assert_eq!(queues().lane_of(&arn("s-bulk-intake")), Ok(Lane::Bulk));
        assert_eq!(
            queues().lane_of(&arn("bulk-intake")),
            Err(UnknownQueue("bulk-intake".into()))
        );
        assert_eq!(queues().lane_of(""), Err(UnknownQueue(String::new())));
    }

    #[test]
    fn what_is_no_queue_url_is_refused() {
        for text in [
            "",
            "my-queue",
            "https://sqs",
            "https://sqs/",
            "https://sqs/1/a b",
        ] {
            assert_eq!(text.parse::<Queue>(), Err(BadQueueUrl), "{text}");
        }
    }
}
