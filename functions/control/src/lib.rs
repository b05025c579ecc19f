//! Keeps the budget in Redis as the account and the tenants' settings say, pauses and resumes tenants, and has their parked mail go again.
//!
//! It is invoked with one [`sendslot_runtime::control::Request`]. What SES and the parameters say of the account is read by
//! `quota-refresh`, outside the VPC, and handed in; for a refresh, Redis is all that it reaches. Pauses reach SES, too: the sending
//! switch of a tenant's configuration set. Parked mail comes out of S3 and goes to the send queues. Operators call it for `pause`,
//! `resume`, `release` and `status`; a schedule asks for `replay` each minute.
//!
//! # What holds
//! - **A refresh can't make things worse**: an answer that is missing or can't be believed leaves what is there, and so does a
//!   tenant's parameter that can't be read. Both are said in the answer, logged and metered.
//! - **Redis is all there is.** What one refresh must know of those before it is noted in the hash `account` there
//!   (`notes`), and is lost together with the budget and the counts that it is about.
//! - **Pauses come before the budget.** While Redis is empty nothing can be booked; the budget is written only after the tenants whose
//!   configuration set may not send are paused, or after that could not be found out in time.
//! - **Writing the same again changes nothing**, so refreshes may overlap and be repeated. So may pauses and replays.
//! - **Nobody waits for it in vain**: all but `replay` and `release` answer within 10 s, and those before Lambda cuts them short.
//! - **Who, why, when**: every pause and resume is logged with who asked and why, and a pause's reason in Redis says who.
//!
//! # Layout
//! - [`handler`]: what is asked, and by whom.
//! - `refresh`: the budget follows the account.
//! - `numbers`: the account's numbers and the settings make a budget.
//! - `tenants`: settings as deployed and from parameters, with today's warm-up caps.
//! - `verify`: which configuration sets want reading.
//! - `suppress`: SES's suppression list, page by page.
//! - `notes`: what is kept from refresh to refresh.
//! - `pauses`: pause and resume, in Redis and at SES.
//! - [`release`]: parked mail that an operator releases, and what it goes through.
//! - [`replay`]: parked mail that goes again by itself, each tenant's at its rate.
//! - `redrive`: dead-lettered mail, or parked, that an operator has go again at a rate.
//! - `booking`, [`deadline`]: slots for it, and the time that there is.
//! - [`ports`], [`bucket`], `letters`, [`far_ahead`]: what that needs from outside; S3, SQS, and what holds far-ahead mail.
//! - `status`: what there is, for people; `find`: where one mail is.
//! - `cancel`: a mail is taken off its way.
//! - `failure`: why something wasn't done.

mod booking;
pub mod bucket;
mod cancel;
pub mod deadline;
mod failure;
pub mod far_ahead;
mod find;
pub mod handler;
mod letters;
mod notes;
mod numbers;
mod pauses;
pub mod ports;
mod redrive;
mod refresh;
pub mod release;
pub mod replay;
mod status;
mod suppress;
mod tenants;
mod verify;

pub use deadline::Deadline;
pub use handler::Control;
pub use release::Releaser;
