//! Why an invocation fails as a whole.

use sendslot_runtime::lanes::UnknownQueue;

use crate::event::MAX_DIRECT;

/// Why an invocation fails as a whole: nothing was booked or put on a queue.
#[derive(Debug, thiserror::Error)]
pub enum HandlerError {
    /// Neither records of a queue nor messages of a direct caller, or both.
    #[error("unknown event: give {{\"messages\": [...]}}, or connect an intake queue")]
    UnknownEvent,
    /// Parked mail is another function's.
    #[error(
        "parked mail is released by the function control: invoke that with {{\"action\": \"release\", \"tenant\": ...}}"
    )]
    Release,
    /// More than one call takes.
    #[error("{0} messages: hand in at most {MAX_DIRECT} a call")]
    TooManyMessages(usize),
    /// Slots alone aren't given away here.
    #[error(
        "\"enqueue\": false is not allowed: name who may book slots only in the stack's parameter SlotHolders, \
         or leave it out, and the mail is put on its send queue"
    )]
    SlotsOnly,
    /// A record without an id: its failure could not be told.
    #[error("a record has no messageId: connect the queue through an event source mapping")]
    NoMessageId,
    /// A record of a queue that isn't an intake queue of ours.
    #[error(transparent)]
    UnknownQueue(#[from] UnknownQueue),
    /// No slots could be had. A queue's messages come again; a direct caller must hand them in again.
    #[error("nothing was booked, hand the messages in again: {0}")]
    Schedule(String),
}
