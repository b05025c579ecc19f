//! What SQS must do beside taking messages.

use aws_sdk_sqs::{
    Client, error::DisplayErrorContext, types::ChangeMessageVisibilityBatchRequestEntry as Entry,
};
use sendslot_runtime::{Queue, queue::MAX_ENTRIES};

use crate::ports::Visibility;

impl Visibility for Client {
    async fn hide(&self, queue: &Queue, messages: &[(String, u16)]) -> Result<(), String> {
        let mut first_error = None;
        for part in messages.chunks(MAX_ENTRIES) {
            if let Err(error) = hide_part(self, queue, part).await {
                first_error.get_or_insert(error);
            }
        }
        first_error.map_or(Ok(()), Err)
    }
}

async fn hide_part(sqs: &Client, queue: &Queue, part: &[(String, u16)]) -> Result<(), String> {
    let entries = part.iter().enumerate().map(|(index, (receipt, seconds))| {
        let entry = Entry::builder()
            .id(index.to_string())
            .receipt_handle(receipt);
        entry
            .visibility_timeout(i32::from(*seconds))
            .build()
            .map_err(|e| e.to_string())
    });
    let entries = entries.collect::<Result<Vec<_>, _>>()?;
    let call = sqs.change_message_visibility_batch().queue_url(queue.url());
    let answer = call.set_entries(Some(entries)).send().await;
    let answer = answer.map_err(|e| DisplayErrorContext(&e).to_string())?;
    match answer.failed().first() {
        None => Ok(()),
        Some(failed) => Err(format!("refused by SQS with {}", failed.code())),
    }
}
