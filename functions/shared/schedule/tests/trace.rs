//! Where mails are: what is noted of them against what their callers were told, and taking them off their way.
#![expect(
    clippy::unwrap_used,
    reason = "a test that can't set itself up has failed"
)]

use proptest::prelude::*;
use sendslot_domain::{
    Budget, Lane, Millis, Moment, Rate, SendId, TenantName, budget::Settings, window::Caps,
};
use sendslot_schedule::{
    Ask, Booking, Cancelled, Claim, ClaimAsk, End, Ended, Ending, Fed, Found, Keys, Mark, Note,
    Purpose, Schedule, Seed, Standing, Standings, Step, Tenant, Terms, Told, What,
    testing::{Clocked, PrivateServer},
};

const START: Moment = Moment(1_800_000_000_000);
const MEMORY: Millis = Millis(15 * 24 * 3_600_000);
const LEASE: Millis = Millis(45_000);

struct Rig {
    _server: PrivateServer,
    clocked: Clocked,
    now: Moment,
}

impl Rig {
    async fn new() -> Self {
        let server = PrivateServer::start();
        let mut clocked = Clocked::new(&server, Keys::of("traced").unwrap()).await;
        clocked.set(START).await.unwrap();
        assert!(clocked.schedule.seed(&seed()).await.unwrap());
        Self {
            _server: server,
            clocked,
            now: START,
        }
    }

    fn schedule(&self) -> &Schedule {
        &self.clocked.schedule
    }

    async fn pass(&mut self, time: Millis) {
        self.now = self.now + time;
        self.clocked.set(self.now).await.unwrap();
    }

    async fn book(&self, lane: Lane, mails: &[(Ask, &str)]) -> Vec<Booking> {
        let (asks, ids): (Vec<Ask>, Vec<_>) = mails.iter().cloned().unzip();
        let ids: Vec<_> = ids.into_iter().map(|id| Some(send_id(id))).collect();
        let booked = self.schedule().book_mail(lane, &asks, &ids, &[]).await;
        booked.unwrap().0
    }

    async fn find(&self, tenant: &TenantName, id: &str) -> Found {
        let mails = [(tenant.clone(), send_id(id))];
        self.schedule().find(&mails).await.unwrap().remove(0)
    }

    /// What was last noted of a mail of the first tenant.
    async fn last(&self, id: &str) -> Option<What> {
        let mut steps = self.find(&tenant(0), id).await.steps;
        steps.pop().map(|step| step.what)
    }

    async fn claim(&self, id: &str, purpose: Purpose) -> Claim {
        let terms = Terms {
            lane: Lane::Bulk,
            lease: LEASE,
            longest_wait: Millis(2000),
            memory: MEMORY,
            resend_after: None,
        };
        let ask = ClaimAsk {
            tenant: tenant(0),
            send_id: send_id(id),
            fingerprint: "print".into(),
            cost: 1,
            slot: self.now,
            suspect_since: None,
            void: None,
            purpose,
        };
        self.schedule().claim("me", terms, &[ask]).await.unwrap()[0]
    }

    async fn end(&self, id: &str, how: Ending, cost: u32) {
        let end = End {
            tenant: tenant(0),
            send_id: send_id(id),
            how,
            cost,
        };
        let ends = [end];
        let commit = self.schedule().commit("me", Lane::Bulk, MEMORY, &ends);
        commit.await.unwrap();
    }

    async fn note(&self, id: &str, what: What) {
        let note = Note {
            tenant: tenant(0),
            send_id: send_id(id),
            lane: Lane::Bulk,
            cost: 2,
            what,
        };
        self.schedule().trace(&[note], MEMORY).await.unwrap();
    }

    async fn cancel(&self, id: &str) -> Cancelled {
        let (tenant, id) = (tenant(0), send_id(id));
        let cancel = self.schedule().cancel(&tenant, &id, MEMORY);
        cancel.await.unwrap()
    }

    async fn tally(&self) -> Vec<[Standings; 2]> {
        let tenants = [tenant(0), tenant(1)];
        self.schedule().tally(&tenants, MEMORY).await.unwrap()
    }
}

fn tenant(n: usize) -> TenantName {
    format!("tenant-{n}").parse().unwrap()
}

fn send_id(id: &str) -> SendId {
    id.parse().unwrap()
}

fn seed() -> Seed {
    let budget = Budget::new(Settings {
        limit: "10".parse().unwrap(),
        headroom: "0.9".parse().unwrap(),
        guard: "0.95".parse().unwrap(),
        burst: None,
        reserve: Rate::ZERO,
        slice: "0.05".parse().unwrap(),
        caps: Caps::default(),
        horizon: Millis::from_secs(20),
    });
    Seed {
        source: "test".into(),
        budget: budget.unwrap(),
        tenants: vec![
            (tenant(0), Tenant::default()),
            (tenant(1), Tenant::default()),
        ],
    }
}

fn ask(n: usize, cost: u32) -> Ask {
    Ask {
        tenant: tenant(n),
        cost,
        standing: Standing::New,
    }
}

/// What ought to be noted where this was answered.
fn noted(booking: &Booking, now: Moment) -> Option<What> {
    match booking {
        Booking::Slot(slot) => Some(What::Booked {
            slot: slot.at,
            cells: slot.cells.clone(),
        }),
        Booking::Wait(wait) => Some(What::Waiting {
            until: now + wait.delay,
        }),
        Booking::Blocked(left) => Some(What::Waiting { until: now + *left }),
        _ => None,
    }
}

/// One mail of a batch: tenant (2: nobody knows it), recipients, whether it has a send id, and whether it was cancelled before.
type Given = (usize, u32, bool, bool);

fn batches() -> impl Strategy<Value = Vec<(bool, u64, Vec<Given>)>> {
    let cost = prop_oneof![4 => Just(1_u32), 2 => 1_u32..4, 1 => 8_u32..=50];
    let tenant = prop_oneof![6 => 0_usize..2, 1 => Just(2)];
    let mail = (
        tenant,
        cost,
        prop::bool::weighted(0.9),
        prop::bool::weighted(0.15),
    );
    let passes = prop_oneof![0_u64..300, 500_u64..3000];
    prop::collection::vec(
        (any::<bool>(), passes, prop::collection::vec(mail, 1..14)),
        1..14,
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(48), ..ProptestConfig::default() })]

    /// Beside it runs a schedule that is asked for what isn't cancelled and notes nothing.
    #[test]
    fn what_is_noted_is_what_was_answered(batches in batches()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (mut traced, mut plain) = (Rig::new().await, Rig::new().await);
            let mut count = 0;
            for (urgent, passes, mails) in batches {
                traced.pass(Millis(passes)).await;
                plain.pass(Millis(passes)).await;
                let lane = if urgent { Lane::Priority } else { Lane::Bulk };
                let (mut asks, mut ids) = (Vec::new(), Vec::new());
                for (n, cost, has_id, _) in &mails {
                    asks.push(ask(*n, *cost));
                    count += 1;
                    ids.push(has_id.then(|| send_id(&format!("m{count}"))));
                }
                let mut cancelled = Vec::new();
                for ((ask, id), (.., cancel)) in asks.iter().zip(&ids).zip(&mails) {
                    let gone = match id {
                        Some(id) if *cancel => {
                            traced.schedule().cancel(&ask.tenant, id, MEMORY).await.unwrap();
                            true
                        }
                        _ => false,
                    };
                    cancelled.push(gone);
                }
                // One more in front, that has to wait behind nobody: the shortest way is taken now and then.
                let booked = traced.schedule().book_mail(lane, &asks, &ids, &[]).await.unwrap().0;
                // Runs stay apart where a cancelled mail lay between, as whoever asked saw them.
                let left: Vec<Ask> = asks.iter().zip(&cancelled).filter(|(_, gone)| !**gone).map(|(ask, _)| ask.clone()).collect();
                let expected = plain.schedule().book(lane, &left).await.unwrap();
                let mut expected = expected.into_iter();
                for (index, booking) in booked.iter().enumerate() {
                    if cancelled[index] {
                        prop_assert_eq!(booking, &Booking::Cancelled);
                        continue;
                    }
                    let expected = expected.next();
                    prop_assert_eq!(Some(booking), expected.as_ref());
                    let Some(id) = &ids[index] else { continue };
                    let found = traced.schedule().find(&[(asks[index].tenant.clone(), id.clone())]).await.unwrap();
                    let last = found[0].steps.last().map(|step| step.what.clone());
                    prop_assert_eq!(last, noted(booking, traced.now), "{:?}", found);
                    if noted(booking, traced.now).is_some() {
                        prop_assert_eq!(found[0].lane, Some(lane));
                        prop_assert_eq!(found[0].cost, Some(asks[index].cost));
                    }
                }
            }
            Ok(())
        })?;
    }
}

#[tokio::test]
async fn addresses_that_nobody_may_be_sent_to_are_named_beside_the_notes() {
    use sendslot_domain::suppression::{AddressDigest, Cause};
    let rig = Rig::new().await;
    let [good, bad] = [1, 2].map(|n| AddressDigest([n; 16]));
    let told = Fed {
        id: "1".into(),
        tenant: tenant(0),
        send_id: send_id("old"),
        told: Told::Bounced,
        recipients: 1,
        sent_at: rig.now,
        suppress: Some((Cause::Bounce, vec![bad])),
    };
    rig.schedule().feed(MEMORY, &[told]).await.unwrap();
    rig.cancel("gone").await;
    let ids = ["gone", "kept", "gone-too"].map(|id| Some(send_id(id)));
    rig.cancel("gone-too").await;
    let asks = [ask(0, 1), ask(0, 1), ask(0, 1)];
    let addresses = [good, bad, good];
    let booked = rig
        .schedule()
        .book_mail(Lane::Bulk, &asks, &ids, &addresses);
    let (booked, suppressed) = booked.await.unwrap();
    assert_eq!(booked[0], Booking::Cancelled);
    assert!(matches!(booked[1], Booking::Slot(_)), "{booked:?}");
    assert_eq!(booked[2], Booking::Cancelled);
    assert_eq!(suppressed, [1]);
    // With nobody left, nobody is looked up.
    let booked = rig
        .schedule()
        .book_mail(Lane::Bulk, &asks[..1], &ids[..1], &addresses);
    assert_eq!(booked.await.unwrap(), (vec![Booking::Cancelled], vec![]));
}

#[tokio::test]
async fn a_mail_is_found_in_each_state() {
    let mut rig = Rig::new().await;
    let nothing = rig.find(&tenant(0), "nowhere").await;
    assert_eq!((nothing.claim, nothing.steps), (None, vec![]));

    let booked = rig.book(Lane::Bulk, &[(ask(0, 3), "booked")]).await;
    let found = rig.find(&tenant(0), "booked").await;
    assert_eq!(
        (found.lane, found.cost, found.claim),
        (Some(Lane::Bulk), Some(3), None)
    );
    let step = Step {
        at: START,
        what: noted(&booked[0], START).unwrap(),
    };
    assert_eq!(found.steps, [step]);
    assert_eq!(
        rig.find(&tenant(1), "booked").await.steps,
        [],
        "another tenant's"
    );

    assert!(matches!(
        rig.claim("sent", Purpose::Send).await,
        Claim::Go { .. }
    ));
    let claim = rig.find(&tenant(0), "sent").await.claim;
    assert_eq!(
        claim,
        Some(Mark::Sending {
            until: START + LEASE
        })
    );
    rig.end("sent", Ending::Sent, 1).await;
    for (id, ending, how) in [
        ("sent", None, "sent"),
        ("bad", Some(Ending::Rejected), "rejected"),
    ] {
        if let Some(ending) = ending {
            rig.claim(id, Purpose::Send).await;
            rig.end(id, ending, 1).await;
        }
        let claim = rig.find(&tenant(0), id).await.claim;
        let how = how.to_owned();
        assert_eq!(claim, Some(Mark::Ended { how, at: START }));
    }
    rig.claim("old", Purpose::Expire).await;
    let how = "expired".to_owned();
    assert_eq!(
        rig.find(&tenant(0), "old").await.claim,
        Some(Mark::Ended { how, at: START })
    );

    rig.claim("died", Purpose::Send).await;
    rig.claim("lost", Purpose::Send).await;
    rig.end("lost", Ending::Uncertain, 1).await;
    rig.pass(LEASE).await;
    let since = START + LEASE;
    assert_eq!(
        rig.find(&tenant(0), "died").await.claim,
        Some(Mark::Uncertain { since })
    );
    assert_eq!(
        rig.find(&tenant(0), "lost").await.claim,
        Some(Mark::Uncertain { since: START })
    );

    let whats = [
        What::Parked {
            first_seen: START,
            reason: "paused".into(),
        },
        What::Dead {
            reason: "unknown_tenant".into(),
        },
        What::Scheduled {
            until: START + Millis(86_400_000),
        },
        What::Waiting {
            until: START + Millis(900_000),
        },
        What::Suppressed,
    ];
    for (n, what) in whats.iter().enumerate() {
        let id = format!("noted-{n}");
        rig.note(&id, what.clone()).await;
        assert_eq!(rig.last(&id).await.as_ref(), Some(what));
    }
}

#[tokio::test]
async fn of_a_long_way_the_begin_and_the_end_are_kept() {
    let mut rig = Rig::new().await;
    for _ in 0..9 {
        let again = Ask {
            standing: Standing::Again,
            ..ask(0, 1)
        };
        rig.book(Lane::Bulk, &[(again, "often")]).await;
        rig.pass(Millis(1000)).await;
    }
    let dead = What::Dead {
        reason: "tries".into(),
    };
    rig.note("often", dead.clone()).await;
    let found = rig.find(&tenant(0), "often").await;
    let at: Vec<u64> = found.steps.iter().map(|step| step.at.0 - START.0).collect();
    assert_eq!(at, [0, 3000, 4000, 5000, 6000, 7000, 8000, 9000]);
    assert_eq!(found.steps[7].what, dead);
    assert_eq!(found.cost, Some(2), "as it was last noted");
}

#[tokio::test]
async fn what_is_cancelled_is_never_sent() {
    let mut rig = Rig::new().await;
    // Before it comes.
    let Cancelled::Done(found) = rig.cancel("early").await else {
        panic!("nothing stands in its way");
    };
    assert_eq!((found.claim, found.steps), (None, vec![]));
    let booked = rig
        .book(Lane::Bulk, &[(ask(0, 1), "early"), (ask(0, 1), "other")])
        .await;
    assert_eq!(booked[0], Booking::Cancelled);
    assert!(matches!(booked[1], Booking::Slot(_)));
    assert_eq!(rig.last("early").await, Some(What::Cancelled));
    // With a slot: whoever cancels is told its cells.
    let Cancelled::Done(found) = rig.cancel("other").await else {
        panic!("it is booked and nothing more");
    };
    assert_eq!(
        found.steps.last().map(|step| &step.what),
        noted(&booked[1], rig.now).as_ref()
    );
    for id in ["early", "other"] {
        assert_eq!(
            rig.claim(id, Purpose::Send).await,
            Claim::Ended(Ended::Cancelled)
        );
        assert_eq!(
            rig.claim(id, Purpose::Resend).await,
            Claim::Ended(Ended::Cancelled)
        );
        let how = "cancelled".to_owned();
        assert_eq!(
            rig.find(&tenant(0), id).await.claim,
            Some(Mark::Ended { how, at: START })
        );
    }
    // While it is sent, and when it was.
    rig.claim("now", Purpose::Send).await;
    assert!(matches!(rig.cancel("now").await, Cancelled::TooLate(_)));
    rig.end("now", Ending::Sent, 1).await;
    let Cancelled::TooLate(found) = rig.cancel("now").await else {
        panic!("it was sent");
    };
    assert!(found.claim.unwrap().is_end());
    // When nobody knows: it isn't sent again, and the provider's event has the last word.
    rig.claim("maybe", Purpose::Send).await;
    rig.end("maybe", Ending::Uncertain, 1).await;
    rig.claim("died", Purpose::Send).await;
    rig.pass(LEASE).await;
    assert!(matches!(
        rig.claim("died", Purpose::Send).await,
        Claim::Uncertain { .. }
    ));
    for id in ["maybe", "died"] {
        let Cancelled::Done(found) = rig.cancel(id).await else {
            panic!("it may still be kept from going again");
        };
        assert!(matches!(found.claim, Some(Mark::Uncertain { .. })));
        assert_eq!(
            rig.claim(id, Purpose::Resend).await,
            Claim::Ended(Ended::Cancelled)
        );
    }
    assert_eq!(rig.tally().await[0][1].uncertain, 0);
    let told = Fed {
        id: "1".into(),
        tenant: tenant(0),
        send_id: send_id("maybe"),
        told: Told::Sent,
        recipients: 1,
        sent_at: START,
        suppress: None,
    };
    rig.schedule().feed(MEMORY, &[told]).await.unwrap();
    assert_eq!(
        rig.claim("maybe", Purpose::Send).await,
        Claim::Ended(Ended::Sent)
    );
    // Another mail under the same send id is another mail's: it was cancelled all the same.
    assert!(
        matches!(rig.cancel("early").await, Cancelled::TooLate(_)),
        "it is already"
    );
}

#[tokio::test]
async fn tenants_have_what_their_callers_were_told() {
    let mut rig = Rig::new().await;
    let (mut booked, mut waiting, mut ahead) = ([0, 0], [0, 0], 0);
    for round in 0..40 {
        let n = round % 2;
        let cost = 1 + u32::try_from(round % 3).unwrap();
        let answers = rig.book(Lane::Bulk, &vec![(ask(n, cost), "some"); 3]).await;
        for answer in answers {
            match answer {
                Booking::Slot(slot) => {
                    booked[n] += u64::from(cost);
                    let later = slot.cells.iter().filter(|(cell, _)| *cell > rig.now.cell());
                    ahead += later.map(|(_, count)| u64::from(*count)).sum::<u64>();
                }
                Booking::Wait(_) => waiting[n] += u64::from(cost),
                other => panic!("{other:?}"),
            }
        }
    }
    assert!(booked[1] > 0 && waiting[1] > 0);
    let tally = rig.tally().await;
    for n in 0..2 {
        let [priority, bulk] = tally[n];
        assert_eq!(priority, Standings::default());
        assert_eq!(
            (bulk.booked, bulk.waiting),
            (booked[n], waiting[n]),
            "tenant {n}"
        );
    }
    let look = rig.schedule().look().await.unwrap();
    let by_minute: u64 = look.booked_in.values().map(|[_, bulk]| bulk).sum();
    assert_eq!(by_minute, ahead, "after the present second");

    // Sent counts once, whoever marks it first and however often it is committed.
    for id in ["a", "b", "c", "d"] {
        rig.claim(id, Purpose::Send).await;
    }
    rig.end("a", Ending::Sent, 3).await;
    rig.end("a", Ending::Sent, 3).await;
    let told = Fed {
        id: "1".into(),
        tenant: tenant(0),
        send_id: send_id("b"),
        told: Told::Sent,
        recipients: 1,
        sent_at: rig.now,
        suppress: None,
    };
    let one = std::slice::from_ref(&told);
    rig.schedule().feed(MEMORY, one).await.unwrap();
    rig.end("b", Ending::Sent, 1).await;
    rig.end("c", Ending::Uncertain, 1).await;
    rig.end("d", Ending::Rejected, 1).await;
    let bulk = rig.tally().await[0][1];
    assert_eq!((bulk.sent_hour, bulk.sent_day, bulk.uncertain), (4, 4, 1));
    // Parked, it is counted there; settled, it is sent.
    rig.claim("e", Purpose::Send).await;
    rig.end("e", Ending::Uncertain, 1).await;
    assert_eq!(rig.tally().await[0][1].uncertain, 2);
    let parked = What::Parked {
        first_seen: START,
        reason: "uncertain".into(),
    };
    rig.note("e", parked).await;
    let settled = Fed {
        id: "2".into(),
        send_id: send_id("c"),
        ..told
    };
    rig.schedule().feed(MEMORY, &[settled]).await.unwrap();
    assert_eq!(rig.tally().await[0][1].uncertain, 0);

    rig.pass(Millis(5 * 900_000)).await;
    let bulk = rig.tally().await[0][1];
    assert_eq!((bulk.booked, bulk.sent_hour, bulk.sent_day), (0, 0, 4));
    rig.pass(Millis(96 * 900_000)).await;
    assert_eq!(rig.tally().await[0][1].sent_day, 0);
}

#[tokio::test]
async fn a_note_costs_a_command_a_mail_and_one_a_call() {
    let server = PrivateServer::start();
    let schedule = Schedule::connect(&server.url(), Keys::of("traced").unwrap()).unwrap();
    assert!(schedule.seed(&seed()).await.unwrap());
    let asks = vec![ask(0, 1); 5];
    let ids: Vec<_> = (0..5).map(|n| Some(send_id(&format!("m{n}")))).collect();
    schedule.book(Lane::Priority, &asks[..1]).await.unwrap();
    schedule
        .book_mail(Lane::Priority, &asks[..1], &ids[..1], &[])
        .await
        .unwrap();
    let mut counts = Vec::new();
    for ids in [&[][..], &ids[..]] {
        let _: String = server.run(&["CONFIG", "RESETSTAT"]).await;
        let booked = schedule
            .book_mail(Lane::Bulk, &asks, ids, &[])
            .await
            .unwrap();
        assert!(matches!(booked.0[4], Booking::Slot(_)), "{booked:?}");
        let stats: String = server.run(&["INFO", "commandstats"]).await;
        let of = |name: &str| -> u64 {
            let line = stats
                .lines()
                .find(|line| line.starts_with(&format!("cmdstat_{name}:")));
            let calls = line.and_then(|line| line.split("calls=").nth(1));
            let calls = calls.and_then(|rest| rest.split(',').next());
            calls.map_or(0, |calls| calls.parse().unwrap())
        };
        counts.push(["evalsha", "mget", "set", "hmget", "hget", "hset"].map(of));
    }
    let [plain, traced] = [counts[0], counts[1]];
    assert_eq!(plain[..3], [1, 0, 0]);
    assert_eq!(traced[..3], [1, 1, 5]);
}

fn cases(usual: u32) -> u32 {
    let cases = std::env::var("PROPTEST_CASES").ok();
    cases.and_then(|n| n.parse().ok()).unwrap_or(usual)
}
