//! Parked mail in S3.

use aws_sdk_s3::{
    Client,
    config::{Builder, http::HttpResponse},
    error::{DisplayErrorContext, ProvideErrorMetadata, SdkError},
};
use sendslot_domain::TenantName;
use sendslot_runtime::parking::{ParkedKey, Reason, prefix};

use crate::ports::{Parked, ParkedMail, Removed};

/// Where all parked mail is, as in [`prefix`].
const ALL: &str = "parked/";
/// The most keys that S3 lists in one page.
const PAGE: usize = 1000;
/// Where a reason is looked for among others, a page has at least so many: each is a call.
const LEAST_PAGE: usize = 100;

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
    async fn tenants(&self) -> Result<Vec<TenantName>, String> {
        let (mut tenants, mut from) = (Vec::new(), None);
        loop {
            let list = self.client.list_objects_v2().bucket(&self.name);
            let list = list.prefix(ALL).delimiter("/");
            let page = list.set_continuation_token(from).send().await;
            let page = page.map_err(|error| DisplayErrorContext(&error).to_string())?;
            let found = page
                .common_prefixes()
                .iter()
                .filter_map(|found| found.prefix());
            tenants.extend(found.filter_map(|found| {
                let name = found.strip_prefix(ALL)?.strip_suffix('/')?;
                name.parse()
                    .inspect_err(
                        |error| tracing::error!(name, %error, "no tenant's: left where it is"),
                    )
                    .ok()
            }));
            from = page.next_continuation_token().map(str::to_owned);
            if from.is_none() {
                return Ok(tenants);
            }
        }
    }

    async fn oldest(
        &self,
        tenant: &TenantName,
        reason: Option<Reason>,
        after: Option<&ParkedKey>,
        most: usize,
    ) -> Result<Vec<ParkedKey>, String> {
        let (prefix, mut keys, mut from) = (prefix(tenant), Vec::new(), None);
        let least = if reason.is_some() { LEAST_PAGE } else { 1 };
        let size = i32::try_from(most.clamp(least, PAGE)).unwrap_or(1000);
        loop {
            let list = self.client.list_objects_v2();
            let list = list.bucket(&self.name).prefix(&prefix).max_keys(size);
            let list = list.set_start_after(after.map(ToString::to_string));
            let page = list.set_continuation_token(from).send().await;
            let page = page.map_err(|error| DisplayErrorContext(&error).to_string())?;
            let found = page.contents().iter().filter_map(|object| object.key());
            let found = found.filter_map(|key| {
                key.parse::<ParkedKey>()
                    .inspect_err(|error| tracing::error!(%error, "left where it is"))
                    .ok()
            });
            keys.extend(found.filter(|key| reason.is_none_or(|reason| key.reason == reason)));
            from = page.next_continuation_token().map(str::to_owned);
            if from.is_none() || keys.len() >= most {
                keys.truncate(most);
                return Ok(keys);
            }
        }
    }

    async fn fetch(&self, key: &ParkedKey) -> Result<Option<ParkedMail>, String> {
        let get = self.client.get_object().bucket(&self.name);
        let object = match get.key(key.to_string()).send().await {
            Ok(object) => object,
            Err(error) if is_gone(&error) => return Ok(None),
            Err(error) => return Err(DisplayErrorContext(&error).to_string()),
        };
        // Without one it could not be told from a mail that is parked in its place.
        let tag = object.e_tag.ok_or("S3 gave no ETag")?;
        let bytes = object.body.collect().await.map_err(|e| e.to_string())?;
        let body = bytes.to_vec();
        Ok(Some(ParkedMail { body, tag }))
    }

    async fn remove(&self, key: &ParkedKey, tag: &str) -> Result<Removed, String> {
        let delete = self.client.delete_object().bucket(&self.name);
        let delete = delete.key(key.to_string()).if_match(tag);
        match delete.send().await {
            Ok(_) => Ok(Removed::Gone),
            Err(error) if is_gone(&error) => Ok(Removed::NotThere),
            Err(error) if is_another(&error) => Ok(Removed::ParkedAnew),
            Err(error) => Err(DisplayErrorContext(&error).to_string()),
        }
    }
}

/// Whether the object isn't the one that was meant: 412, or 409 when it was written at that very moment.
fn is_another<E>(error: &SdkError<E, HttpResponse>) -> bool {
    let status = error.raw_response().map(|answer| answer.status().as_u16());
    matches!(status, Some(409 | 412))
}

fn is_gone<E: ProvideErrorMetadata, R>(error: &SdkError<E, R>) -> bool {
    error.code() == Some("NoSuchKey")
}
