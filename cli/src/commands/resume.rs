//! `sendslot resume`.

use sendslot_runtime::control::{Request, Resume, Resumed};

use crate::{
    args::ResumeArgs,
    error::Error,
    exit::Exit,
    invoke::{SHORT, caller},
    output::Output,
    stack::Stack,
    text::per_second,
};

pub(crate) async fn resume(
    stack: &Stack,
    args: &ResumeArgs,
    again: &str,
    out: &mut Output,
) -> Result<Exit, Error> {
    let request = Request::Resume(Resume {
        tenant: args.tenant.clone(),
        rate: args.rate.map(|rate| rate.to_string()),
        reason: args.reason.clone(),
        caller: caller(),
    });
    let done: Resumed = stack.control()?.ask(&request, SHORT).await?;
    if out.json() {
        out.value(&done)?;
    } else {
        let was = if done.was_paused {
            "may send again"
        } else {
            "wasn't paused"
        };
        out.say(&format!(
            "{} {was}; mail that is parked goes at {}\nto follow: {again} watch",
            done.tenant,
            per_second(done.rate)
        ))?;
    }
    Ok(Exit::Done)
}
