//! `sendslot pause`.

use sendslot_runtime::control::{Pause, Paused, Request};

use crate::{
    args::PauseArgs,
    error::Error,
    exit::Exit,
    invoke::{SHORT, caller},
    output::Output,
    stack::Stack,
    text::{line, moment},
};

pub(crate) async fn pause(
    stack: &Stack,
    args: &PauseArgs,
    again: &str,
    out: &mut Output,
) -> Result<Exit, Error> {
    let request = Request::Pause(Pause {
        tenant: args.tenant.clone(),
        reason: args.reason.clone(),
        caller: caller(),
        ..Pause::default()
    });
    let done: Paused = stack.control()?.ask(&request, SHORT).await?;
    if out.json() {
        out.value(&done)?;
    } else {
        out.say(&text(&done, &args.tenant, again))?;
    }
    Ok(Exit::Done)
}

fn text(done: &Paused, tenant: &str, again: &str) -> String {
    let (since, reason) = (moment(done.since_ms), line(&done.reason));
    let mut text = if done.already {
        format!("{tenant} was paused already, since {since}: {reason}")
    } else {
        format!(
            "{tenant} is paused since {since}: {reason}\nwhat was granted may still go within two seconds; all else is kept"
        )
    };
    for set in &done.not_switched {
        text = format!(
            "{text}\nSES's configuration set {set} is still on (others send through it, or switching failed): only what comes through here is kept back"
        );
    }
    format!("{text}\nto undo: {again} resume {tenant}")
}
