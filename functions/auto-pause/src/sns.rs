//! Telling people.

use crate::{
    aws::Aws,
    ports::{CallError, Notify},
};

impl Notify for Aws {
    async fn notify(&self, topic: &str, subject: &str, text: &str) -> Result<(), CallError> {
        let call = self.sns.publish().topic_arn(topic);
        call.subject(subject).message(text).send().await?;
        Ok(())
    }
}
