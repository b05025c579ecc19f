//! Parked mail in S3.

use aws_sdk_s3::{
    Client,
    config::Builder,
    error::{DisplayErrorContext, ProvideErrorMetadata, SdkError},
};
use sendslot_domain::TenantName;
use sendslot_runtime::parking::{ParkedKey, Reason, prefix};

use crate::ports::Parked;

/// The bucket of parked mail.
#[derive(Clone, Debug)]
pub struct Bucket {
    client: Client,
    name: String,
}

impl Bucket {
    /// The bucket of that name. It is named in the path, which every S3 endpoint understands, an emulator's too.
    #[must_use]
    pub fn new(config: Builder, name: String) -> Self {
        let client = Client::from_conf(config.force_path_style(true).build());
        Self { client, name }
    }
}

impl Parked for Bucket {
    async fn oldest(
        &self,
        tenant: &TenantName,
        reason: Reason,
        most: usize,
    ) -> Result<Vec<ParkedKey>, String> {
        let (prefix, mut keys, mut from) = (prefix(tenant), Vec::new(), None);
        loop {
            let list = self.client.list_objects_v2();
            let list = list.bucket(&self.name).prefix(&prefix);
            let page = list.set_continuation_token(from).send().await;
            let page = page.map_err(|e| DisplayErrorContext(&e).to_string())?;
            let found = page.contents().iter().filter_map(|object| object.key());
            let found = found.filter_map(|key| {
                key.parse::<ParkedKey>()
                    .inspect_err(|error| tracing::error!(%error, "left where it is"))
                    .ok()
            });
            keys.extend(found.filter(|key| key.reason == reason));
            from = page.next_continuation_token().map(str::to_owned);
            if from.is_none() || keys.len() >= most {
                keys.truncate(most);
                return Ok(keys);
            }
        }
    }

    async fn fetch(&self, key: &ParkedKey) -> Result<Option<String>, String> {
        let get = self.client.get_object().bucket(&self.name);
        let object = match get.key(key.to_string()).send().await {
            Ok(object) => object,
            Err(error) if is_gone(&error) => return Ok(None),
            Err(error) => return Err(DisplayErrorContext(&error).to_string()),
        };
        let bytes = object.body.collect().await.map_err(|e| e.to_string())?;
        String::from_utf8(bytes.to_vec())
            .map(Some)
            .map_err(|_| "it is no UTF-8".to_owned())
    }

    async fn remove(&self, key: &ParkedKey) -> Result<(), String> {
        let delete = self.client.delete_object().bucket(&self.name);
        delete
            .key(key.to_string())
            .send()
            .await
            .map(|_| ())
            .map_err(|error| DisplayErrorContext(&error).to_string())
    }
}

fn is_gone<E: ProvideErrorMetadata, R>(error: &SdkError<E, R>) -> bool {
    error.code() == Some("NoSuchKey")
}
