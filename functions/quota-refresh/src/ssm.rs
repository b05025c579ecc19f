//! The tenants' settings in SSM.

use crate::{
    aws::Aws,
    ports::{CallError, Page, Parameters},
};

impl Parameters for Aws {
    async fn page(&self, path: &str, token: Option<String>) -> Result<Page, CallError> {
        let call = self.ssm.get_parameters_by_path();
        // A secret among them isn't decrypted: it is no setting of ours, and would show in logs.
        let call = call.path(path).recursive(false).with_decryption(false);
        let page = call.set_next_token(token).send().await?;
        let parameters = page.parameters.unwrap_or_default().into_iter();
        Ok(Page {
            parameters: parameters
                .filter_map(|parameter| {
                    Some((parameter.name?, parameter.value.unwrap_or_default()))
                })
                .collect(),
            next: page.next_token.filter(|token| !token.is_empty()),
        })
    }
}
