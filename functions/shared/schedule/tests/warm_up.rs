//! An address warms up for 40 days at 20 mails an hour and more: script and model agree on every booking, no hour holds more than
//! its cap, and little of it is left unused.
#![expect(
    clippy::unwrap_used,
    reason = "a test that can't set itself up has failed"
)]

use std::collections::{BTreeMap, VecDeque};

use sendslot_domain::{
    Budget, Lane, Millis, Moment, TenantName,
    budget::Settings,
    schedule::{Booking as Expected, Schedule as Model},
    warm_up::{Date, Step, WarmUp},
    window::{Caps, Span},
};
use sendslot_schedule::{
    Ask, Booking, Keys, Seed, Standing, Tenant,
    testing::{Clocked, PrivateServer},
};

const DAYS: u64 = 40;
const HOUR: Millis = Millis::from_secs(3600);
/// So many mails of the warming tenant wait or ask at any time.
const WAITING: usize = 10;

fn budget() -> Budget {
    Budget::new(Settings {
        limit: "14".parse().unwrap(),
        headroom: "0.9".parse().unwrap(),
        guard: "0.95".parse().unwrap(),
        burst: None,
        reserve: "2".parse().unwrap(),
        slice: "0.05".parse().unwrap(),
        caps: Caps::default(),
        horizon: Millis::from_secs(60),
    })
    .unwrap()
}

fn ramp(start: Date) -> WarmUp {
    let step = |day, cap| Step {
        day,
        cap,
        per: Span::Hour,
    };
    WarmUp::new(start, vec![step(1, 20), step(15, 28), step(29, 40)], None).unwrap()
}

/// Both schedules, set up alike.
struct Both {
    clocked: Clocked,
    model: Model,
    warm: TenantName,
    other: TenantName,
}

impl Both {
    /// As `control` does at each refresh.
    async fn refresh(&mut self, caps: Caps) {
        let capped = Tenant {
            caps,
            ..Tenant::default()
        };
        let tenants = vec![
            (self.warm.clone(), capped),
            (self.other.clone(), Tenant::default()),
        ];
        for (name, tenant) in &tenants {
            self.model.set_tenant(name.clone(), *tenant);
        }
        let seed = Seed {
            source: "account".into(),
            budget: budget(),
            tenants,
        };
        self.clocked.schedule.seed(&seed).await.unwrap();
    }

    async fn book(&mut self, now: Moment, tenant: &TenantName, standing: Standing) -> Booking {
        self.clocked.set(now).await.unwrap();
        let ask = Ask {
            tenant: tenant.clone(),
            cost: 1,
            standing,
        };
        let mut answers = self
            .clocked
            .schedule
            .book(Lane::Bulk, &[ask])
            .await
            .unwrap();
        let expected = self.model.book(now, Lane::Bulk, tenant, 1, standing);
        let answer = answers.remove(0);
        let agree = match (&answer, &expected) {
            (Booking::Slot(slot), Expected::Slot(expected)) => slot == expected,
            (Booking::Wait(wait), Expected::Wait(expected)) => wait == expected,
            _ => false,
        };
        assert!(
            agree,
            "{now:?} {tenant} {standing:?}: script {answer:?}, model {expected:?}"
        );
        answer
    }
}

#[tokio::test]
async fn an_address_warms_up_for_forty_days() {
    let start = Moment(1_800_000_000_000 / 86_400_000 * 86_400_000);
    let server = PrivateServer::start();
    let clocked = Clocked::new(&server, Keys::of("warm").unwrap()).await;
    let mut both = Both {
        clocked,
        model: Model::new(start, budget().for_tenants(2)),
        warm: "warm".parse().unwrap(),
        other: "other".parse().unwrap(),
    };
    let ramp = ramp(Date::of(start));
    let (warm, other) = (both.warm.clone(), both.other.clone());

    let mut asks: BTreeMap<(Moment, usize), (TenantName, Standing)> = BTreeMap::new();
    let mut number = 0;
    let mut ask = |asks: &mut BTreeMap<_, _>, at, tenant: &TenantName, standing| {
        number += 1;
        asks.insert((at, number), (tenant.clone(), standing));
    };
    for _ in 0..WAITING {
        ask(&mut asks, start, &warm, Standing::New);
    }
    for minute in (0..DAYS * 24 * 60).step_by(10) {
        // A steady trickle of somebody else's, whom none of this concerns.
        ask(
            &mut asks,
            start + Millis(minute * 60_000 + 500),
            &other,
            Standing::New,
        );
    }
    let (mut refreshed, mut caps) = (Moment(0), Caps::default());
    let (mut sent, mut hours): (u64, VecDeque<Moment>) = (0, VecDeque::new());
    let mut allowed = 0;
    while let Some(((now, _), (tenant, standing))) = asks.pop_first() {
        if start.until(now) >= Millis(DAYS * 86_400_000) {
            break;
        }
        while refreshed <= now {
            refreshed = refreshed.max(start) + HOUR;
            both.clocked.set(now).await.unwrap();
            caps = ramp.caps(Date::of(now));
            both.refresh(caps).await;
            allowed += caps.hour.unwrap();
        }
        match both.book(now, &tenant, standing).await {
            Booking::Slot(slot) if tenant == warm => {
                sent += 1;
                hours.push_back(slot.at);
                while hours
                    .front()
                    .is_some_and(|first| first.until(slot.at) >= HOUR)
                {
                    hours.pop_front();
                }
                assert!(hours.len() as u64 <= caps.hour.unwrap(), "{:?}", slot.at);
                ask(&mut asks, now + Millis(1000), &warm, Standing::New);
            }
            Booking::Slot(slot) => assert!(
                now.until(slot.at) < Millis(2000),
                "it waits for another's cap"
            ),
            Booking::Wait(wait) => {
                assert_eq!(tenant, warm);
                let standing = match wait.place {
                    0 => standing,
                    place => Standing::Waited { place },
                };
                ask(&mut asks, now + wait.delay, &tenant, standing);
            }
            answer => panic!("{answer:?}"),
        }
    }
    assert!(sent * 100 >= allowed * 95, "{sent} of {allowed} were sent");
    assert!(sent <= allowed, "{sent} of {allowed} were sent");
}
