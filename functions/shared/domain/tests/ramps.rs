//! The ramps in `docs/warm-up` can be used as they are.

use std::{fs, path::Path};

use sendslot_domain::{
    warm_up::{Date, Step, WarmUp, span_named},
    window::{Caps, Span},
};
use serde_json::Value;

/// Reads a file as a tenant's settings hold it.
fn ramp(name: &str) -> Vec<Step> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../../docs/warm-up")
        .join(name);
    let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let read: Vec<Value> = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
    let step = |value: &Value| {
        let step = value.as_object()?;
        assert_eq!(
            step.len(),
            3,
            "{name}: {value} has more than a step's fields"
        );
        Some(Step {
            day: u32::try_from(step.get("day")?.as_u64()?).ok()?,
            cap: step.get("cap")?.as_u64()?,
            per: span_named(step.get("per")?.as_str()?).ok()?,
        })
    };
    read.iter()
        .map(|value| step(value).unwrap_or_else(|| panic!("{name}: {value} is no step")))
        .collect()
}

#[test]
fn both_ramps_are_valid_and_rise() {
    let start: Date = "2026-11-30".parse().unwrap();
    for (name, span, first, days, last) in [
        ("sendgrid.json", Span::Hour, 20, 42, 19_601_056),
        ("ses.json", Span::Day, 1111, 45, 50_000),
    ] {
        let steps = ramp(name);
        let warm_up = WarmUp::new(start, steps, None).unwrap_or_else(|e| panic!("{name}: {e}"));
        let cap_on = |day: u32| -> Caps {
            let today = Date::from_days(start.days() + day - 1).unwrap();
            warm_up.caps(today)
        };
        assert_eq!(cap_on(1).of(span), Some(first), "{name}");
        for day in 2..=days {
            let (before, now) = (cap_on(day - 1).of(span), cap_on(day).of(span));
            assert!(before < now, "{name}, day {day}: {now:?} after {before:?}");
        }
        assert_eq!(cap_on(days).of(span), Some(last), "{name}");
        assert_eq!(cap_on(days + 1000).of(span), Some(last), "{name}");
    }
}

/// A tenant's settings are one parameter of the standard tier: 4096 characters at most.
#[test]
fn a_ramp_fits_into_a_parameter() {
    for name in ["sendgrid.json", "ses.json"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../../docs/warm-up")
            .join(name);
        let size = fs::read_to_string(path).unwrap().len();
        assert!(size < 4096 - 512, "{name} has {size} characters");
    }
}
