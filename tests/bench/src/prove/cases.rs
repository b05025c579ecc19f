//! What is proved, one function each.

use sendslot_domain::{
    Budget, Millis, Moment, TenantName, budget::Settings, schedule::Tenant, window::Caps,
};

use super::{
    Figure, Result,
    desk::{Desk, Model, Scripts, Setup},
    world::World,
};

/// When everything begins: any moment.
const START: Moment = Moment(1_800_000_000_000);
const DAY: u64 = 86_400;

type Show<'a> = &'a mut dyn FnMut(Figure);

pub(super) fn all(quick: bool, show: Show<'_>) -> Result<()> {
    for by_scripts in [false, true] {
        // The scripts are held against the model step by step; in a hurry a few of the cases show it here, too.
        let few = by_scripts && quick;
        let mails = if quick { 300_000 } else { 1_000_000 };
        equals(by_scripts, "100", "0.95", show)?;
        weights(by_scripts, show)?;
        pause(by_scripts, show)?;
        quota(
            by_scripts,
            if by_scripts || quick { 4000 } else { 20_000 },
            show,
        )?;
        if few {
            continue;
        }
        equals(by_scripts, "14", "0.9", show)?;
        million(by_scripts, 1, mails, show)?;
        million(by_scripts, 20, mails, show)?;
        for count in [2, 20, 50] {
            unequal(by_scripts, count, show)?;
        }
        for (count, nth) in [(1, 20), (1, 2), (5, 10)] {
            gaps(by_scripts, count, nth, show)?;
        }
        stall(by_scripts, show)?;
        outage(by_scripts, show)?;
        hourly(by_scripts, show)?;
        raise(by_scripts, show)?;
    }
    Ok(())
}

fn after(seconds: u64) -> Moment {
    START + Millis::from_secs(seconds)
}

fn settings(limit: &str, headroom: &str) -> Result<Settings> {
    Ok(Settings {
        limit: limit.parse()?,
        headroom: headroom.parse()?,
        guard: "0.99".parse()?,
        burst: None,
        reserve: "0".parse()?,
        slice: "0.05".parse()?,
        caps: Caps::default(),
        horizon: Millis::from_secs(60),
    })
}

fn budget(limit: &str, headroom: &str, daily: Option<u64>) -> Result<Budget> {
    let caps = Caps {
        hour: None,
        day: daily,
    };
    Ok(Budget::new(Settings {
        caps,
        ..settings(limit, headroom)?
    })?)
}

fn tenants(count: usize) -> Result<Vec<(TenantName, Tenant)>> {
    let named = |n| Ok((format!("tenant-{n}").parse()?, Tenant::default()));
    (0..count).map(named).collect()
}

fn desk(by_scripts: bool, setup: &Setup) -> Result<Box<dyn Desk>> {
    Ok(if by_scripts {
        Box::new(Scripts::new(setup)?)
    } else {
        Box::new(Model::new(setup))
    })
}

fn who(by_scripts: bool) -> &'static str {
    if by_scripts { "scripts" } else { "model" }
}

/// Twenty tenants press together, one of them for a minute longer and with 72,000 mails; now and then a newcomer.
fn equals(by_scripts: bool, limit: &str, headroom: &str, show: Show<'_>) -> Result<()> {
    const PRESSING: usize = 20;
    const NEWCOMERS: usize = 100;
    let setup = Setup {
        now: START,
        budget: budget(limit, headroom, None)?,
        tenants: tenants(PRESSING + NEWCOMERS)?,
    };
    let rate = setup.budget.rate().per_second();
    let mut desk = desk(by_scripts, &setup)?;
    let mut world = World::new(desk.as_mut(), &setup.tenants, START);
    world.hand_in(0, 72_000, START);
    // Enough for thirteen minutes.
    let each = whole(rate * 800.0 / as_float(PRESSING));
    for tenant in 1..PRESSING {
        world.hand_in(tenant, each, after(60));
    }
    for newcomer in 0..NEWCOMERS {
        let at = after(61) + Millis(u64::try_from(newcomer)? * 6100);
        world.hand_in(PRESSING + newcomer, 1, at);
    }
    world.run_until(after(760), |_| true)?;

    let name = format!("{}: 20 tenants at {limit}/s", who(by_scripts));
    let late = world
        .mail
        .iter()
        .filter(|mail| mail.tenant >= PRESSING)
        .map(|mail| match &mail.slot {
            Some(slot) => mail.born.until(slot.at).0,
            None => u64::MAX,
        });
    let latest = late.max().unwrap_or(u64::MAX);
    show(Figure {
        what: format!("{name}: a newcomer's slot, latest of {NEWCOMERS}"),
        asked: "< 3,000 ms after booking".to_owned(),
        seen: format!("{latest} ms"),
        holds: latest < 3000,
    });
    // What one has booked before the others came can't be undone: a minute later they are equal.
    let sent = world.sent(START, 120, 720);
    let (least, most) = (least(&sent[..PRESSING]), most(&sent[..PRESSING]));
    show(Figure {
        what: format!("{name}: sent in ten minutes, from one horizon after the last came"),
        asked: "differ by < 10 %".to_owned(),
        seen: format!("{least} to {most}, the early one {}", sent[0]),
        holds: as_float_u(most) < as_float_u(least) * 1.1,
    });
    let used = as_float_u(sent.iter().sum()) / (rate * 600.0);
    show(Figure {
        what: format!("{name}: used of the bulk part, with a slice"),
        asked: "≥ 0.98".to_owned(),
        seen: format!("{used:.4}"),
        holds: used >= 0.98,
    });
    let waits = world.waits();
    show(Figure {
        what: format!("{name}: waits a mail"),
        asked: "≤ 2 on average".to_owned(),
        seen: format!("{:.2}, at most {}", waits.mean, waits.most),
        holds: waits.mean <= 2.0,
    });
    show(overtaken(&name, &world));
    Ok(())
}

/// Two tenants with weights 3 and 1.
fn weights(by_scripts: bool, show: Show<'_>) -> Result<()> {
    let mut setup = Setup {
        now: START,
        budget: budget("100", "0.95", None)?,
        tenants: tenants(2)?,
    };
    setup.tenants[0].1.weight = 3;
    let mut desk = desk(by_scripts, &setup)?;
    let mut world = World::new(desk.as_mut(), &setup.tenants, START);
    world.hand_in(0, 60_000, START);
    world.hand_in(1, 30_000, START);
    world.run_until(after(700), |_| true)?;
    let sent = world.sent(START, 60, 660);
    let ratio = as_float_u(sent[0]) / as_float_u(sent[1]);
    show(Figure {
        what: format!("{}: weights 3 and 1, ten minutes", who(by_scripts)),
        asked: "3 within 10 %".to_owned(),
        seen: format!("{} and {}: {ratio:.3}", sent[0], sent[1]),
        holds: (2.7..=3.3).contains(&ratio),
    });
    Ok(())
}

/// A million mails at 95/s: of one tenant at once, or of twenty that come at odd times.
fn million(by_scripts: bool, count: usize, mails: usize, show: Show<'_>) -> Result<()> {
    let setup = Setup {
        now: START,
        budget: budget("100", "0.95", None)?,
        tenants: tenants(count)?,
    };
    let mut desk = desk(by_scripts, &setup)?;
    let mut world = World::new(desk.as_mut(), &setup.tenants, START);
    for tenant in 0..count {
        // Somewhere in the first ten minutes, the first one at once.
        let odd = u64::try_from(tenant * tenant * 7919 % 600)?;
        world.hand_in(tenant, mails / count, after(odd));
    }
    world.run()?;
    let name = format!(
        "{}: {mails} mails at 95/s, {count} {}",
        who(by_scripts),
        if count == 1 { "tenant" } else { "tenants" }
    );
    let took = as_float_u(START.until(world.last()).0) / 1000.0;
    let ideal = as_float(mails) / 95.0;
    show(Figure {
        what: format!("{name}: all have left after"),
        asked: format!("{ideal:.0} s ± 2 %"),
        seen: format!("{took:.0} s, {:+.2} %", (took / ideal - 1.0) * 100.0),
        holds: (took / ideal - 1.0).abs() <= 0.02,
    });
    let waits = world.waits();
    show(if count == 1 {
        Figure {
            what: format!("{name}: waits a mail beyond one per 900 s"),
            asked: "≤ 2".to_owned(),
            seen: format!(
                "at most {} ({:.2} on average; in all {:.2}, at most {})",
                waits.most_beyond, waits.mean_beyond, waits.mean, waits.most
            ),
            holds: waits.most_beyond <= 2,
        }
    } else {
        Figure {
            what: format!("{name}: waits a mail beyond one per 900 s, on average"),
            asked: "≤ 2".to_owned(),
            seen: format!(
                "{:.2}, at most {} (in all {:.2}, at most {})",
                waits.mean_beyond, waits.most_beyond, waits.mean, waits.most
            ),
            holds: waits.mean_beyond <= 2.0,
        }
    });
    show(overtaken(&name, &world));
    Ok(())
}

fn overtaken(name: &str, world: &World<'_>) -> Figure {
    let overtaken = world.overtaken();
    Figure {
        what: format!("{name}: a mail overtaken by newer mail of its tenant"),
        asked: "by ≤ 60,000 ms, one horizon".to_owned(),
        seen: format!("by at most {overtaken} ms"),
        holds: overtaken <= 60_000,
    }
}

/// One tenant with much mail, and others that are done long before it.
fn unequal(by_scripts: bool, count: usize, show: Show<'_>) -> Result<()> {
    let setup = Setup {
        now: START,
        budget: budget("100", "0.95", None)?,
        tenants: tenants(count)?,
    };
    let mut desk = desk(by_scripts, &setup)?;
    let mut world = World::new(desk.as_mut(), &setup.tenants, START);
    world.hand_in(0, 60_000, START);
    for tenant in 1..count {
        world.hand_in(tenant, 40_000 / (count - 1), START);
    }
    world.run()?;
    let name = format!(
        "{}: 60,000 mails of one tenant, 40,000 of {} others",
        who(by_scripts),
        count - 1
    );
    let took = as_float_u(START.until(world.last()).0) / 1000.0;
    let ideal = as_float(world.mail.len()) / 95.0;
    let waits = world.waits();
    show(Figure {
        what: format!("{name}: all have left after"),
        asked: format!("{ideal:.0} s ± 2 %"),
        seen: format!("{took:.0} s; {:.2} waits a mail", waits.mean),
        holds: (took / ideal - 1.0).abs() <= 0.02,
    });
    Ok(())
}

/// Of the mail that waits a part never comes back: deleted by hand, say.
fn gaps(by_scripts: bool, count: usize, nth: usize, show: Show<'_>) -> Result<()> {
    let setup = Setup {
        now: START,
        budget: budget("100", "0.95", None)?,
        tenants: tenants(count)?,
    };
    let mut desk = desk(by_scripts, &setup)?;
    let mut world = World::new(desk.as_mut(), &setup.tenants, START);
    for tenant in 0..count {
        world.hand_in(tenant, 120_000 / count, START);
    }
    world.run_until(after(300), |_| true)?;
    world.lose(nth);
    let left = world.left();
    world.run()?;
    let name = format!(
        "{}: each {nth}. of {} mails of {count} never comes back",
        who(by_scripts),
        world.mail.len()
    );
    let ends = after(300).until(world.last()).0 / 1000;
    let rates = world.per_second(after(300), usize::try_from(ends)?);
    let idle = rates.split(|sent| *sent > 0).map(<[u64]>::len).max();
    let idle = idle.unwrap_or(0);
    // What is left would take so long at the full rate; timers can't be woken for 900 s.
    let ideal = left / 95;
    show(Figure {
        what: format!("{name}: the others have left after"),
        asked: format!("{ideal} s and at most 900 s more; never 60 s without any"),
        seen: format!(
            "{ends} s; at most {idle} s without any; {:.2} waits a mail",
            world.waits().mean
        ),
        holds: usize::try_from(ends)? <= ideal + 900 && idle < 60 && world.left() == 0,
    });
    Ok(())
}

/// For twenty seconds nobody is asked: the function is throttled, say.
fn stall(by_scripts: bool, show: Show<'_>) -> Result<()> {
    const PRESSING: usize = 20;
    let setup = Setup {
        now: START,
        budget: budget("100", "0.95", None)?,
        tenants: tenants(PRESSING)?,
    };
    let mut desk = desk(by_scripts, &setup)?;
    let mut world = World::new(desk.as_mut(), &setup.tenants, START);
    for _ in 0..60 {
        for tenant in 0..PRESSING {
            world.hand_in(tenant, 100, START);
        }
    }
    world.run_until(after(300), |_| true)?;
    world.stall(after(320));
    world.run_until(after(1000), |_| true)?;
    let sent = world.sent(START, 300, 900);
    let waits = world.waits();
    show(Figure {
        what: format!(
            "{}: twenty seconds without an answer: equals",
            who(by_scripts)
        ),
        asked: "differ by < 10 % in ten minutes; ≤ 3 waits a mail".to_owned(),
        seen: format!(
            "{} to {}; {:.2} waits",
            least(&sent),
            most(&sent),
            waits.mean
        ),
        holds: as_float_u(most(&sent)) < as_float_u(least(&sent)) * 1.1 && waits.mean <= 3.0,
    });
    Ok(())
}

/// For twenty-five minutes nobody is asked, longer than lines are kept.
fn outage(by_scripts: bool, show: Show<'_>) -> Result<()> {
    const BACK: u64 = 300 + 1500;
    let setup = Setup {
        now: START,
        budget: budget("100", "0.95", None)?,
        tenants: tenants(3)?,
    };
    let mut desk = desk(by_scripts, &setup)?;
    let mut world = World::new(desk.as_mut(), &setup.tenants, START);
    for tenant in 0..3 {
        world.hand_in(tenant, 40_000, START);
    }
    world.run_until(after(300), |_| true)?;
    let left = world.left();
    world.stall(after(BACK));
    world.run()?;
    let took = after(BACK).until(world.last()).0 / 1000;
    let ideal = left / 95;
    let waits = world.waits();
    show(Figure {
        what: format!(
            "{}: back after 25 minutes, {left} mails left after",
            who(by_scripts)
        ),
        asked: format!("{ideal} s + 2 %; ≤ 5 waits a mail"),
        seen: format!("{took} s; {:.2} waits, at most {}", waits.mean, waits.most),
        holds: usize::try_from(took)? <= ideal * 102 / 100 && waits.mean <= 5.0,
    });
    Ok(())
}

/// A cap of an hour with five times as much mail.
fn hourly(by_scripts: bool, show: Show<'_>) -> Result<()> {
    let setup = Setup {
        now: START,
        budget: Budget::new(Settings {
            caps: Caps {
                hour: Some(1000),
                day: None,
            },
            ..settings("100", "0.95")?
        })?,
        tenants: tenants(2)?,
    };
    let mut desk = desk(by_scripts, &setup)?;
    let mut world = World::new(desk.as_mut(), &setup.tenants, START);
    for tenant in 0..2 {
        world.hand_in(tenant, 2500, START);
    }
    world.run()?;
    let hours = as_float_u(START.until(world.last()).0) / 3_600_000.0;
    let waits = world.waits();
    show(Figure {
        what: format!("{}: 5,000 mails, 1,000 an hour", who(by_scripts)),
        asked: "left within 4.2 hours, and ≤ 8 waits a mail beyond one per 900 s".to_owned(),
        seen: format!(
            "{hours:.2} hours; {:.2} beyond, in all {:.2}",
            waits.mean_beyond, waits.mean
        ),
        holds: hours <= 4.2 && waits.mean_beyond <= 8.0,
    });
    Ok(())
}

/// The tenant that holds most of the schedule is paused.
fn pause(by_scripts: bool, show: Show<'_>) -> Result<()> {
    const PAUSED_AT: u64 = 300;
    const BURST: usize = 500;
    let mut setup = Setup {
        now: START,
        budget: budget("100", "0.95", None)?,
        tenants: tenants(6)?,
    };
    setup.tenants[0].1.weight = 8;
    let mut desk = desk(by_scripts, &setup)?;
    let mut world = World::new(desk.as_mut(), &setup.tenants, START);
    world.hand_in(0, 60_000, START);
    for tenant in 1..5 {
        world.hand_in(tenant, 40_000, START);
    }
    world.hand_in(5, BURST, after(PAUSED_AT) + Millis(100));
    world.run_until(after(PAUSED_AT), |_| true)?;
    let before = world.sent(START, PAUSED_AT - 100, PAUSED_AT);
    world.pause(0)?;
    world.run_until(after(PAUSED_AT + 1500), |tenant| tenant != 0)?;

    let name = format!(
        "{}: the tenant with {} of {} mails a second paused",
        who(by_scripts),
        before[0] / 100,
        before.iter().sum::<u64>() / 100
    );
    let gone = after(PAUSED_AT + 1);
    let sent_on = world
        .mail
        .iter()
        .filter(|mail| mail.tenant == 0 && mail.slot.as_ref().is_some_and(|slot| slot.at >= gone));
    let sent_on = sent_on.count();
    let burst = world.mail.iter().filter(|mail| mail.tenant == 5);
    let last = burst
        .map(|mail| {
            mail.slot
                .as_ref()
                .map_or(u64::MAX, |slot| mail.born.until(slot.at).0)
        })
        .max();
    let last = last.unwrap_or(u64::MAX);
    // Of 95 a second, others still have what they had booked.
    let free = before[0] / 100;
    let bound = 2000 + 1000 * u64::try_from(BURST)?.div_ceil(free);
    show(Figure {
        what: format!("{name}: {BURST} mails handed in just then use the freed cells"),
        asked: format!("at once: all within {bound} ms; nothing more of the paused one's"),
        seen: format!("all within {last} ms; {sent_on} of the paused one's"),
        holds: last <= bound && sent_on == 0,
    });
    let rates = world.per_second(after(PAUSED_AT), 1500);
    let minutes = |second: usize| rates[second..second + 300].iter().sum::<u64>();
    let full = 95 * 300 * 98 / 100;
    let back = (0..1200).find(|second| (*second..1200).all(|later| minutes(later) >= full));
    show(Figure {
        what: format!(
            "{name}: the rate is the budget's again, 98 % over five minutes and from then on"
        ),
        asked: "within 900 s".to_owned(),
        seen: back.map_or("never".to_owned(), |second| format!("after {second} s")),
        holds: back.is_some_and(|second| second <= 900),
    });
    Ok(())
}

/// The limit doubles while mail waits.
fn raise(by_scripts: bool, show: Show<'_>) -> Result<()> {
    const RAISED_AT: u64 = 1000;
    let setup = Setup {
        now: START,
        budget: budget("50", "0.95", None)?,
        tenants: tenants(3)?,
    };
    let mut desk = desk(by_scripts, &setup)?;
    let mut world = World::new(desk.as_mut(), &setup.tenants, START);
    for tenant in 0..3 {
        world.hand_in(tenant, 80_000, START);
    }
    world.run_until(after(RAISED_AT), |_| true)?;
    world.set_budget(budget("100", "0.95", None)?)?;
    world.run_until(after(RAISED_AT + 1400), |_| true)?;
    let rates = world.per_second(after(RAISED_AT), 1300);
    let name = format!("{}: 50/s raised to 100/s while mail waits", who(by_scripts));
    let first = rates.iter().position(|sent| *sent > 50);
    show(Figure {
        what: format!("{name}: used by what wakes"),
        asked: "at once".to_owned(),
        seen: first.map_or("never".to_owned(), |second| {
            format!("more than 50 in a second after {second} s")
        }),
        holds: first.is_some_and(|second| second <= 2),
    });
    let minute = |second: usize| rates[second..second + 60].iter().sum::<u64>();
    let full = 95 * 60 * 98 / 100;
    let back = (0..1240).find(|second| (*second..1240).all(|later| minute(later) >= full));
    show(Figure {
        what: format!("{name}: used fully, 98 % over a minute and from then on"),
        asked: "within 900 s".to_owned(),
        seen: back.map_or("never".to_owned(), |second| format!("after {second} s")),
        holds: back.is_some_and(|second| second <= 900),
    });
    Ok(())
}

/// Three times the daily quota at once; later the quota is doubled.
fn quota(by_scripts: bool, quota: u64, show: Show<'_>) -> Result<()> {
    let setup = Setup {
        now: START,
        budget: budget("100", "0.95", Some(quota))?,
        tenants: tenants(2)?,
    };
    let mut desk = desk(by_scripts, &setup)?;
    let mut world = World::new(desk.as_mut(), &setup.tenants, START);
    for tenant in 0..2 {
        world.hand_in(tenant, usize::try_from(quota * 3 / 2)?, START);
    }
    world.run()?;
    let name = format!("{}: {} mails, {quota} a day", who(by_scripts), quota * 3);
    let mut slots: Vec<u64> = world
        .mail
        .iter()
        .filter_map(|mail| Some(mail.slot.as_ref()?.at.0))
        .collect();
    slots.sort_unstable();
    let fullest = slots
        .iter()
        .enumerate()
        .map(|(first, slot)| slots[first..].partition_point(|later| *later < slot + DAY * 1000));
    let fullest = fullest.max().unwrap_or(0);
    let days = as_float_u(START.until(world.last()).0) / 1000.0 / as_float_u(DAY);
    show(Figure {
        what: format!("{name}: the fullest 24 hours"),
        asked: format!("≤ {quota}"),
        seen: format!("{fullest}; all {} left within {days:.3} days", slots.len()),
        holds: u64::try_from(fullest)? <= quota && slots.len() == world.mail.len() && days < 2.1,
    });

    let mut desk = self::desk(by_scripts, &setup)?;
    let mut world = World::new(desk.as_mut(), &setup.tenants, START);
    for tenant in 0..2 {
        world.hand_in(tenant, usize::try_from(quota * 3 / 2)?, START);
    }
    world.run_until(after(7200), |_| true)?;
    world.set_budget(budget("100", "0.95", Some(quota * 2))?)?;
    world.run_until(after(7200 + 1000), |_| true)?;
    let raised = after(7200);
    let more = world.mail.iter().filter_map(|mail| {
        let slot = mail.slot.as_ref()?;
        (slot.at >= raised).then(|| raised.until(slot.at).0 / 1000)
    });
    let more: Vec<u64> = more.filter(|second| *second < 960).collect();
    show(Figure {
        what: format!("{name}: doubled after two hours"),
        asked: format!(
            "used by those who wake and whose turn it is, all {quota} of it within 900 s and a horizon"
        ),
        seen: format!("{} by then, the first after {} s", more.len(), least(&more)),
        holds: u64::try_from(more.len())? == quota,
    });
    Ok(())
}

fn least(of: &[u64]) -> u64 {
    of.iter().copied().min().unwrap_or(0)
}

fn most(of: &[u64]) -> u64 {
    of.iter().copied().max().unwrap_or(0)
}

#[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
const fn as_float(count: usize) -> f64 {
    count as f64
}

#[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
const fn as_float_u(count: u64) -> f64 {
    count as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a number of mails"
)]
const fn whole(count: f64) -> usize {
    count as usize
}
