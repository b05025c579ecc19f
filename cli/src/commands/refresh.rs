//! `sendslot refresh`.

use sendslot_runtime::control::{Failure, Refreshed};
use serde::Deserialize;

use crate::{
    error::Error,
    exit::Exit,
    invoke::LONG,
    output::Output,
    stack::Stack,
    text::{count, line, moment},
};

/// What quota-refresh answers.
#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    control: Option<Refreshed>,
    #[serde(default)]
    error: Option<Failure>,
}

pub(crate) async fn refresh(stack: &Stack, out: &mut Output) -> Result<Exit, Error> {
    let told = stack.quota_refresh()?.nudge(LONG).await?;
    let unread = |message: String| {
        Error::Control(Failure {
            code: "bad_answer".to_owned(),
            message,
        })
    };
    let answer: Answer = serde_json::from_value(told)
        .map_err(|error| unread(format!("quota-refresh's answer can't be read: {error}")))?;
    if let Some(failure) = answer.error {
        return Err(Error::Control(failure));
    }
    let Some(done) = answer.control else {
        return Err(unread("quota-refresh's answer is empty".to_owned()));
    };
    if out.json() {
        out.value(&done)?;
    } else {
        out.say(&text(&done))?;
    }
    Ok(if done.kept.is_some() || !done.invalid_tenants.is_empty() {
        Exit::Partly
    } else {
        Exit::Done
    })
}

fn text(done: &Refreshed) -> String {
    let mut lines = Vec::new();
    match &done.budget {
        Some(budget) => {
            let day = budget.daily_quota.map_or_else(
                || "no daily quota".to_owned(),
                |quota| format!("{} a day", count(quota)),
            );
            let changed = if budget.changed {
                "changed"
            } else {
                "as before"
            };
            lines.push(format!(
                "the budget is {}, {day}, from {}; {changed}",
                line(&budget.limit),
                budget.source
            ));
        }
        None => lines.push("no budget yet: refresh again in a minute".to_owned()),
    }
    if let Some(kept) = &done.kept {
        lines.push(format!("the account's numbers weren't taken: {kept}"));
    }
    for tenant in &done.invalid_tenants {
        let holds = if tenant.kept {
            "its last good settings hold"
        } else {
            "it has no settings"
        };
        lines.push(format!(
            "tenant {}: {}; {holds}",
            line(&tenant.name),
            line(&tenant.problem)
        ));
    }
    if let Some(at) = done.generation_ms.filter(|_| done.empty_found) {
        lines.push(format!("Redis was found empty at {}", moment(at)));
    }
    lines.extend(
        done.warnings
            .iter()
            .map(|warning| format!("note: {}", line(warning))),
    );
    lines.join("\n")
}
