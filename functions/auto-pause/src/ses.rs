//! The sending switches: those of configuration sets, and the account's.

use sendslot_runtime::switch::{Switch, SwitchError};

use crate::{
    aws::Aws,
    ports::{Account, CallError},
};

impl Switch for Aws {
    async fn switch(&self, set: &str, sending: bool) -> Result<(), SwitchError> {
        self.ses.switch(set, sending).await
    }
}

impl Account for Aws {
    async fn stop(&self) -> Result<(), CallError> {
        let call = self.ses.put_account_sending_attributes();
        call.sending_enabled(false).send().await?;
        Ok(())
    }
}
