//! Parking mail in S3.

use std::future::Future;

use aws_sdk_s3::{Client, config::Builder, error::DisplayErrorContext, primitives::ByteStream};

/// Sets mail aside.
pub trait Parking: Sync {
    /// Keeps a body under a key, in place of what is there. Kept when it answers, and then maybe also when it fails.
    ///
    /// # Errors
    /// What went wrong.
    fn park(&self, key: String, body: String) -> impl Future<Output = Result<(), String>> + Send;
}

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

impl Parking for Bucket {
    async fn park(&self, key: String, body: String) -> Result<(), String> {
        let put = self
            .client
            .put_object()
            .bucket(&self.name)
            .key(key)
            .content_type("application/json");
        put.body(ByteStream::from(body.into_bytes()))
            .send()
            .await
            .map(|_| ())
            .map_err(|error| DisplayErrorContext(&error).to_string())
    }
}
