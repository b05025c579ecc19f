//! `sendslot find`.

use sendslot_runtime::control::{Find, Found, Request};

use crate::{
    args::MailArgs,
    error::Error,
    exit::Exit,
    invoke::{SHORT, caller},
    output::Output,
    stack::Stack,
    text::{line, moment, table},
};

pub(crate) async fn find(stack: &Stack, args: &MailArgs, out: &mut Output) -> Result<Exit, Error> {
    let request = Request::Find(Find {
        tenant: args.tenant.clone(),
        send_id: args.send_id.clone(),
        caller: caller(),
    });
    let found: Found = stack.control()?.ask(&request, SHORT).await?;
    if out.json() {
        out.value(&found)?;
    } else {
        out.say(&text(&found))?;
    }
    Ok(if found.state == "unknown" {
        Exit::Nothing
    } else {
        Exit::Done
    })
}

fn text(found: &Found) -> String {
    let state = &found.state;
    let mut text = format!("{} of {}: {state}", found.send_id, found.tenant);
    let meaning = meaning(state);
    if !meaning.is_empty() {
        text = format!("{text}, {meaning}");
    }
    let mut facts = Vec::new();
    let mut fact = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            facts.push(format!("  {name:<10}  {value}"));
        }
    };
    fact("since", found.since_ms.map(moment));
    fact("reason", found.reason.as_deref().map(line));
    let slot = if state == "booked" { "slot" } else { "due" };
    fact(slot, found.due_ms.map(moment));
    fact("lane", found.lane.clone());
    fact(
        "recipients",
        found.recipients.map(|number| number.to_string()),
    );
    for fact in facts {
        text = format!("{text}\n{fact}");
    }
    if !found.history.is_empty() {
        let rows = found.history.iter().map(|step| {
            let due = step.due_ms.map(|due| format!("for {}", moment(due)));
            let reason = step.reason.as_deref().map(line);
            let more: Vec<String> = due.into_iter().chain(reason).collect();
            vec![moment(step.at_ms), step.what.clone(), more.join(", ")]
        });
        let rows: Vec<Vec<String>> = rows.collect();
        text = format!("{text}\n\n{}", table(3, &["when", "what", ""], &rows));
    }
    text
}

/// A state in words.
pub(crate) fn meaning(state: &str) -> &'static str {
    match state {
        "unknown" => "nothing is remembered of it: it never came, or ended more than a day ago",
        "scheduled" => "it waits for its time, far ahead",
        "waiting" => "it is in line for a slot",
        "booked" => "it has its slot",
        "sending" => "it is being sent",
        "uncertain" => "nobody knows yet whether it was sent",
        "parked" => "it was set aside",
        "sent" => "the provider took it",
        "rejected" => "the provider refused it for good",
        "suppressed" => "nobody was left who may be sent to",
        "expired" => "its time was over before it could go",
        "cancelled" => "it isn't sent",
        "dead_lettered" => "it is on a dead-letter queue",
        _ => "",
    }
}
