//! The commands, a file each.

mod cancel;
mod completions;
mod find;
mod pause;
mod redrive;
mod refresh;
mod resume;
mod status;
mod tenants;
mod watch;

use crate::{
    args::{Args, Command, TenantCommand},
    enqueue,
    error::Error,
    exit::Exit,
    output::Output,
    plan,
    stack::Stack,
};

/// Does what is asked.
///
/// # Errors
/// When it can't be done.
pub async fn run(args: &Args, out: &mut Output) -> Result<Exit, Error> {
    let again = args.global.again();
    let stack = match &args.command {
        Command::Completions { shell } => return completions::completions(*shell, out),
        Command::Plan(asked) => return plan::plan(asked, out),
        _ => Stack::find(&args.global).await?,
    };
    match &args.command {
        Command::Completions { .. } | Command::Plan(_) => Ok(Exit::Done),
        Command::Status => status::status(&stack, &again, out).await,
        Command::Watch(asked) => watch::watch(&stack, asked, &again, out).await,
        Command::Find(asked) => find::find(&stack, asked, out).await,
        Command::Pause(asked) => pause::pause(&stack, asked, &again, out).await,
        Command::Resume(asked) => resume::resume(&stack, asked, &again, out).await,
        Command::Cancel(asked) => cancel::cancel(&stack, asked, out).await,
        Command::Redrive(asked) => redrive::redrive(&stack, asked, &again, out).await,
        Command::Tenant(TenantCommand::List) => tenants::list(&stack, out).await,
        Command::Refresh => refresh::refresh(&stack, out).await,
        Command::Enqueue(asked) => {
            let queue = stack.intake_queue_url(asked.lane())?;
            enqueue::enqueue(&stack.sqs(), queue, asked, out).await
        }
    }
}
