//! SQS, as far as operators ask: what queues hold, and dead letters.

use aws_sdk_sqs::{
    Client,
    error::DisplayErrorContext,
    types::{
        ChangeMessageVisibilityBatchRequestEntry as Show, DeleteMessageBatchRequestEntry as Delete,
        Message, MessageSystemAttributeName, QueueAttributeName as Name,
    },
};
use sendslot_domain::Moment;
use sendslot_runtime::{Queue, control::QueueStatus};

use crate::ports::{DeadLetters, Depths, Letter};

/// What a dead letter says of itself, as `reserve` and `send` write it.
const REASON: &str = "SendslotReason";
const DETAIL: &str = "SendslotDetail";
const FIRST_SEEN: &str = "SendslotFirstSeen";

impl Depths for Client {
    async fn depth(&self, queue: &Queue) -> Result<QueueStatus, String> {
        const WANTED: [Name; 3] = [
            Name::ApproximateNumberOfMessages,
            Name::ApproximateNumberOfMessagesDelayed,
            Name::ApproximateNumberOfMessagesNotVisible,
        ];
        let ask = self.get_queue_attributes().queue_url(queue.url());
        let ask = ask.set_attribute_names(Some(WANTED.into()));
        let answer = ask.send().await;
        let answer = answer.map_err(|error| DisplayErrorContext(&error).to_string())?;
        let told = answer.attributes();
        let number = |name| {
            let text = told.and_then(|told| told.get(&name));
            let number = text.and_then(|text| text.parse().ok());
            number.ok_or_else(|| format!("{name} is missing"))
        };
        let [visible, delayed, in_flight] = WANTED;
        Ok(QueueStatus {
            visible: number(visible)?,
            delayed: number(delayed)?,
            in_flight: number(in_flight)?,
        })
    }
}

impl DeadLetters for Client {
    async fn receive(&self, queue: &Queue, hidden_seconds: u16) -> Result<Vec<Letter>, String> {
        let ask = self.receive_message().queue_url(queue.url());
        let answer = ask
            .max_number_of_messages(10)
            // Without a wait SQS looks at some of its servers only.
            .wait_time_seconds(1)
            .visibility_timeout(hidden_seconds.into())
            .message_attribute_names("All")
            .message_system_attribute_names(MessageSystemAttributeName::SentTimestamp)
            .send()
            .await;
        let answer = answer.map_err(|error| DisplayErrorContext(&error).to_string())?;
        Ok(answer.messages().iter().map(letter).collect())
    }

    async fn delete(&self, queue: &Queue, receipts: &[&str]) -> Result<Vec<usize>, String> {
        let entries = receipts.iter().enumerate().map(|(index, receipt)| {
            let entry = Delete::builder().id(index.to_string());
            entry.receipt_handle(*receipt).build()
        });
        let entries: Vec<Delete> = entries
            .collect::<Result<_, _>>()
            .map_err(|error| error.to_string())?;
        let ask = self.delete_message_batch().queue_url(queue.url());
        let answer = ask.set_entries(Some(entries)).send().await;
        let answer = answer.map_err(|error| DisplayErrorContext(&error).to_string())?;
        let failed = answer.failed().iter();
        Ok(failed
            .map(|failed| failed.id().parse().unwrap_or(usize::MAX))
            .collect())
    }

    async fn show(&self, queue: &Queue, receipts: &[&str]) -> Result<(), String> {
        let entries = receipts.iter().enumerate().map(|(index, receipt)| {
            let entry = Show::builder().id(index.to_string());
            entry.receipt_handle(*receipt).visibility_timeout(0).build()
        });
        let entries: Vec<Show> = entries
            .collect::<Result<_, _>>()
            .map_err(|error| error.to_string())?;
        let ask = self.change_message_visibility_batch();
        let answer = ask.queue_url(queue.url()).set_entries(Some(entries));
        let answer = answer.send().await;
        answer.map_err(|error| DisplayErrorContext(&error).to_string())?;
        Ok(())
    }
}

fn letter(message: &Message) -> Letter {
    let said = |name: &str| -> Option<String> {
        let value = message.message_attributes()?.get(name)?;
        value.string_value().map(str::to_owned)
    };
    let system = message.attributes();
    let sent = system.and_then(|all| all.get(&MessageSystemAttributeName::SentTimestamp));
    let number = |text: &String| text.parse().ok().map(Moment);
    Letter {
        id: message.message_id().unwrap_or_default().to_owned(),
        receipt: message.receipt_handle().unwrap_or_default().to_owned(),
        body: message.body().unwrap_or_default().to_owned(),
        reason: said(REASON),
        detail: said(DETAIL).unwrap_or_default(),
        first_seen: said(FIRST_SEEN).as_ref().and_then(number),
        sent: sent.and_then(number).unwrap_or_default(),
    }
}
