//! `sendslot cancel`.

use sendslot_runtime::control::{Cancel, Cancelled, Request};

use crate::{
    args::MailArgs,
    error::Error,
    exit::Exit,
    invoke::{SHORT, caller},
    output::Output,
    stack::Stack,
};

pub(crate) async fn cancel(
    stack: &Stack,
    args: &MailArgs,
    out: &mut Output,
) -> Result<Exit, Error> {
    let request = Request::Cancel(Cancel {
        tenant: args.tenant.clone(),
        send_id: args.send_id.clone(),
        caller: caller(),
    });
    let done: Cancelled = stack.control()?.ask(&request, SHORT).await?;
    if out.json() {
        out.value(&done)?;
    } else {
        out.say(&text(&done))?;
    }
    Ok(if done.was == "unknown" {
        Exit::Nothing
    } else {
        Exit::Done
    })
}

fn text(done: &Cancelled) -> String {
    let (mail, tenant) = (&done.send_id, &done.tenant);
    if done.was == "unknown" {
        return format!(
            "{mail} of {tenant} isn't known: if it comes, it isn't sent; see whether the send id is right"
        );
    }
    let mut text = format!("{mail} of {tenant} is cancelled; it was {}", done.was);
    if done.released {
        text.push_str(", and its slot is free for others");
    }
    if done.may_have_been_sent {
        text.push_str("\nit may have been sent before: nobody knows; it isn't sent again");
    }
    text
}
