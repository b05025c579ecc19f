//! Keeps the budget in Redis as the account and the tenants' settings say, and pauses and resumes tenants.
//!
//! It is invoked with one [`sendslot_runtime::control::Request`] and reaches Redis alone: what SES and the parameters say is
//! read by `quota-refresh`, outside the VPC, and handed in. Operators call it for `pause`, `resume` and `status`.
//!
//! # What holds
//! - **A refresh can't make things worse**: an answer that is missing or can't be believed leaves what is there, and so does a
//!   tenant's parameter that can't be read. Both are said in the answer, logged and metered.
//! - **Redis is all there is.** What one refresh must know of those before it is noted in the hash `account` there
//!   (`notes`), and is lost together with the budget and the counts that it is about.
//! - **Pauses come before the budget.** While Redis is empty nothing can be booked; the budget is written only after the tenants whose
//!   configuration set may not send are paused, or after that could not be found out in time.
//! - **Writing the same again changes nothing**, so refreshes may overlap and be repeated.
//!
//! # Layout
//! - [`handler`]: what is asked, and by whom; pause and resume.
//! - `refresh`: the budget follows the account.
//! - `numbers`: the account's numbers and the settings make a budget.
//! - `tenants`: settings as deployed and from parameters, with today's warm-up caps.
//! - `verify`: which configuration sets want reading.
//! - `notes`: what is kept from refresh to refresh.
//! - `status`: what there is, for people.

pub mod handler;
mod notes;
mod numbers;
mod refresh;
mod status;
mod tenants;
mod verify;

pub use handler::Control;
