//! How the functions prove to Redis who they are: with a token of their IAM role, or with a password from Secrets
//! Manager. Neither stands in the environment.
//!
//! - [`IamLogin`]: `ElastiCache`'s IAM authentication. The password is a request that is signed and never sent; signing
//!   needs no call, so each connection gets a token of its own.
//! - [`SecretLogin`]: the secret's current value, kept in memory, and fetched again when Redis refuses it.

use std::{
    fmt::Write,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use aws_config::{Region, SdkConfig};
use aws_sdk_secretsmanager::config::{
    Credentials as AwsKeys, ProvideCredentials, SharedCredentialsProvider,
};
use aws_sigv4::{
    http_request::{SignableBody, SignableRequest, SignatureLocation, SigningSettings, sign},
    sign::v4::SigningParams,
};
use aws_smithy_types::error::display::DisplayErrorContext;
use sendslot_schedule::{Asked, Credentials, Login, NoCredentials};

use crate::settings::RedisLogin;

/// How long a token lets new connections in: the longest that `ElastiCache` takes.
/// <https://docs.aws.amazon.com/AmazonElastiCache/latest/dg/auth-iam.html>
const TOKEN_LASTS: Duration = Duration::from_mins(15);
/// After this `ElastiCache` closes a connection that a token has let in (the same page).
const CONNECTION_LASTS: Duration = Duration::from_hours(12);
/// A refused secret is fetched again after the first of these at the earliest, after twice as long each time it
/// comes back unchanged, and after the second at the latest. While a secret is rotated, Redis and Secrets Manager
/// differ for some seconds; a wrong one would cost a call of Secrets Manager for each call of Redis.
const FETCH_AGAIN: (Duration, Duration) = (Duration::from_secs(5), Duration::from_mins(5));

/// Where the credentials come from that the settings ask for; nothing if that is the URL.
#[must_use]
pub fn login(settings: &RedisLogin, aws: &SdkConfig) -> Option<Arc<dyn Login>> {
    match settings {
        RedisLogin::Url => None,
        RedisLogin::Iam(identity) => Some(Arc::new(IamLogin::new(identity.clone(), aws))),
        RedisLogin::Secret { arn } => Some(Arc::new(SecretLogin::new(arn.clone(), aws))),
    }
}

/// As whom, and where, a token is good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IamIdentity {
    /// The `ElastiCache` user, whose id and name are the same.
    pub user: String,
    /// The name of the replication group or of the serverless cache.
    pub cache: String,
    /// Whether it is a serverless cache.
    pub serverless: bool,
}

/// Logs in as an `ElastiCache` user with the function's IAM role.
pub struct IamLogin {
    identity: IamIdentity,
    region: Option<Region>,
    keys: Option<SharedCredentialsProvider>,
    look_at: String,
}

impl IamLogin {
    fn new(identity: IamIdentity, aws: &SdkConfig) -> Self {
        let IamIdentity { user, cache, .. } = &identity;
        let look_at = format!(
            "that ElastiCache user {user:?} has IAM authentication and is in the user group of cache {cache:?}, and \
             that the function's role has elasticache:Connect on both"
        );
        Self {
            look_at,
            identity,
            region: aws.region().cloned(),
            keys: aws.credentials_provider(),
        }
    }

    async fn ask(&self) -> Result<Credentials, NoCredentials> {
        let (Some(region), Some(keys)) = (&self.region, &self.keys) else {
            return Err(NoCredentials(
                "no AWS region or credentials to sign with: set AWS_REGION".into(),
            ));
        };
        let keys = keys.provide_credentials().await.map_err(|error| {
            let error = DisplayErrorContext(&error);
            NoCredentials(format!("no AWS credentials to sign with: {error}"))
        })?;
        Ok(Credentials {
            user: Some(self.identity.user.clone()),
            password: token(&self.identity, region.as_ref(), keys, SystemTime::now())?,
            lasts: Some(CONNECTION_LASTS),
        })
    }
}

impl Login for IamLogin {
    fn credentials(&self) -> Asked<'_> {
        Box::pin(self.ask())
    }

    /// The next token is a new one anyway.
    fn refused(&self, _: &Credentials) {}

    fn look_at(&self) -> &str {
        &self.look_at
    }
}

/// The token that stands for the user's password: a presigned URL without its scheme.
fn token(
    identity: &IamIdentity,
    region: &str,
    keys: AwsKeys,
    now: SystemTime,
) -> Result<String, NoCredentials> {
    let unsigned = |error: &dyn std::error::Error| {
        NoCredentials(format!("the token can't be signed: {error}"))
    };
    // ElastiCache keeps names in lower case, and compares.
    let cache = identity.cache.to_ascii_lowercase();
    let mut token = format!("{cache}/?Action=connect&User={}", encoded(&identity.user));
    if identity.serverless {
        token.push_str("&ResourceType=ServerlessCache");
    }
    let mut settings = SigningSettings::default();
    settings.signature_location = SignatureLocation::QueryParams;
    settings.expires_in = Some(TOKEN_LASTS);
    let keys = keys.into();
    let params = SigningParams::builder()
        .identity(&keys)
        .region(region)
        .name("elasticache")
        .time(now)
        .settings(settings)
        .build()
        .map_err(|error| unsigned(&error))?
        .into();
    let url = format!("http://{token}");
    let request = SignableRequest::new("GET", &url, std::iter::empty(), SignableBody::Bytes(&[]))
        .map_err(|error| unsigned(&error))?;
    let (instructions, _) = sign(request, &params)
        .map_err(|error| unsigned(&error))?
        .into_parts();
    for (name, value) in instructions.params() {
        token.extend(["&", name, "=", &encoded(value)]);
    }
    Ok(token)
}

/// As `SigV4` writes it in a query.
fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                encoded.push(char::from(byte));
            }
            // Writing to a string can't fail.
            _ => drop(write!(encoded, "%{byte:02X}")),
        }
    }
    encoded
}

/// Logs in with what a secret of Secrets Manager holds.
pub struct SecretLogin {
    client: aws_sdk_secretsmanager::Client,
    arn: String,
    look_at: String,
    held: Mutex<Held>,
}

impl SecretLogin {
    fn new(arn: String, aws: &SdkConfig) -> Self {
        Self {
            client: aws_sdk_secretsmanager::Client::new(aws),
            look_at: format!("that {arn} holds the user's present password"),
            arn,
            held: Mutex::default(),
        }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn ask(&self) -> Result<Credentials, NoCredentials> {
        let kept = match self.held().next(Instant::now()) {
            Next::Keep(kept) => return Ok(kept),
            Next::Fetch(kept) => kept,
        };
        match (self.fetch().await, kept) {
            (Ok(fetched), _) => {
                self.held().take(fetched.clone(), Instant::now());
                Ok(fetched)
            }
            // Perhaps Redis has changed its mind.
            (Err(error), Some(kept)) => {
                tracing::warn!(%error, "the secret can't be fetched again");
                Ok(kept)
            }
            (Err(error), None) => Err(error),
        }
    }

    async fn fetch(&self) -> Result<Credentials, NoCredentials> {
        let request = self.client.get_secret_value().secret_id(&self.arn);
        let answer = request.send().await.map_err(|error| {
            let error = DisplayErrorContext(&error);
            NoCredentials(format!(
                "{} can't be fetched (see the role's secretsmanager:GetSecretValue, the way to Secrets Manager, and, if \
                 the secret has a KMS key of its own, that key's policy): {error}",
                self.arn
            ))
        })?;
        parse(answer.secret_string().unwrap_or_default())
            .map_err(|what| NoCredentials(format!("{} {what}", self.arn)))
    }
}

impl Login for SecretLogin {
    fn credentials(&self) -> Asked<'_> {
        Box::pin(self.ask())
    }

    fn refused(&self, credentials: &Credentials) {
        self.held().refuse(credentials);
    }

    fn look_at(&self) -> &str {
        &self.look_at
    }
}

/// What was fetched, and when to do so again.
#[derive(Default)]
struct Held {
    credentials: Option<Credentials>,
    /// Redis has refused them.
    refused: bool,
    /// When they may be fetched again, and how long after the last time that is.
    again: Option<(Instant, Duration)>,
}

enum Next {
    /// These are to be used, perhaps once more.
    Keep(Credentials),
    /// They are to be fetched; these were the last.
    Fetch(Option<Credentials>),
}

impl Held {
    fn next(&mut self, now: Instant) -> Next {
        let Some(kept) = &self.credentials else {
            return Next::Fetch(None);
        };
        match self.again {
            Some((again, pause)) if self.refused && again <= now => {
                // Set here already, so that a fetch that fails isn't tried again at once.
                let pause = (pause * 2).min(FETCH_AGAIN.1);
                self.again = Some((now + pause, pause));
                Next::Fetch(Some(kept.clone()))
            }
            _ => Next::Keep(kept.clone()),
        }
    }

    fn take(&mut self, fetched: Credentials, now: Instant) {
        if self.credentials.as_ref() != Some(&fetched) {
            self.credentials = Some(fetched);
            self.again = Some((now + FETCH_AGAIN.0, FETCH_AGAIN.0));
        }
        self.refused = false;
    }

    fn refuse(&mut self, credentials: &Credentials) {
        // Not those of a connection from before.
        self.refused |= self.credentials.as_ref() == Some(credentials);
    }
}

/// A secret is the password, or JSON such as `{"username": "…", "password": "…"}`, as Secrets Manager's rotations write.
/// What is wrong with it is said without showing any of it.
fn parse(secret: &str) -> Result<Credentials, &'static str> {
    let secret = secret.trim();
    let (user, password) = if secret.starts_with('{') {
        let json: serde_json::Value =
            serde_json::from_str(secret).map_err(|_| "starts with { and is no JSON")?;
        let word = |name: &str| json[name].as_str().map(str::to_owned);
        let password = word("password").ok_or("is JSON without the text \"password\"")?;
        (word("username").filter(|user| !user.is_empty()), password)
    } else {
        (None, secret.to_owned())
    };
    if password.is_empty() {
        return Err("holds no password");
    }
    Ok(Credentials {
        user,
        password,
        lasts: None,
    })
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead, BufReader, Read, Write as _},
        net::TcpListener,
        sync::mpsc,
    };

    use aws_config::BehaviorVersion;

    use super::*;

    const ARN: &str = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:redis-AbCdEf";

    /// A Secrets Manager with these answers, each a status and a body; and what it was asked.
    fn secrets_manager(answers: Vec<(u16, &'static str)>) -> (SecretLogin, mpsc::Receiver<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap_or_else(|e| panic!("{e}"));
        let port = listener.local_addr().map_or(0, |address| address.port());
        let (tell, asked) = mpsc::channel();
        std::thread::spawn(move || {
            for (status, body) in answers {
                let Ok((mut stream, _)) = listener.accept() else {
                    return;
                };
                let mut input = BufReader::new(&stream);
                let (mut head, mut length) = (String::new(), 0);
                while !head.ends_with("\r\n\r\n") && input.read_line(&mut head).is_ok() {}
                for line in head.to_lowercase().lines() {
                    if let Some(bytes) = line.strip_prefix("content-length:") {
                        length = bytes.trim().parse().unwrap_or(0);
                    }
                }
                let mut request = vec![0; length];
                let _ = input.read_exact(&mut request);
                let _ = tell.send(format!("{head}{}", String::from_utf8_lossy(&request)));
                let head = "content-type: application/x-amz-json-1.1\r\nconnection: close";
                let length = body.len();
                let _ = write!(
                    stream,
                    "HTTP/1.1 {status} x\r\n{head}\r\ncontent-length: {length}\r\n\r\n{body}"
                );
            }
        });
        let keys = AwsKeys::new("AKIDEXAMPLE", "secret", None, None, "test");
        let aws = SdkConfig::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new("eu-west-1"))
            .credentials_provider(SharedCredentialsProvider::new(keys))
            .endpoint_url(format!("http://127.0.0.1:{port}"))
            .http_client(aws_smithy_http_client::Builder::new().build_http())
            .retry_config(aws_config::retry::RetryConfig::disabled())
            .build();
        (SecretLogin::new(ARN.into(), &aws), asked)
    }

    #[tokio::test]
    async fn a_secret_is_fetched_once_until_redis_refuses_it() {
        let (login, asked) = secrets_manager(vec![
            (
                200,
                r#"{"SecretString": "{\"username\": \"fns\", \"password\": \"old\"}"}"#,
            ),
            (200, r#"{"SecretString": "new"}"#),
            (400, r#"{"__type": "ResourceNotFoundException"}"#),
        ]);
        let ask = async || {
            let asked = login.credentials().await;
            asked
                .map(|c| (c.user, c.password))
                .map_err(|e| e.to_string())
        };
        let old = || Ok((Some("fns".to_owned()), "old".to_owned()));
        assert_eq!(ask().await, old());
        assert_eq!(ask().await, old());
        let request = asked.try_recv().unwrap_or_default();
        assert!(
            request
                .to_lowercase()
                .contains("x-amz-target: secretsmanager.getsecretvalue")
                && request.contains(&format!(r#""SecretId":"{ARN}""#)),
            "{request}"
        );
        assert!(asked.try_recv().is_err(), "fetched twice");
        let refused = async || {
            let credentials = login.credentials().await;
            login.refused(&credentials.unwrap_or_else(|e| panic!("{e}")));
            // As if the pause were over.
            if let Some((again, _)) = &mut login.held().again {
                *again = Instant::now();
            }
        };
        refused().await;
        assert_eq!(ask().await, Ok((None, "new".to_owned())));
        assert_eq!(ask().await, Ok((None, "new".to_owned())));
        // What can't be fetched again is kept.
        refused().await;
        assert_eq!(ask().await, Ok((None, "new".to_owned())));
        assert_eq!(asked.iter().count(), 2);
    }

    #[tokio::test]
    async fn a_secret_that_can_not_be_had_says_what_to_look_at() {
        for (status, body, part) in [
            (
                400,
                r#"{"__type": "AccessDeniedException", "Message": "no"}"#,
                "secretsmanager:GetSecretValue",
            ),
            (
                400,
                r#"{"__type": "AccessDeniedException", "Message": "no"}"#,
                "AccessDeniedException",
            ),
            (
                200,
                r#"{"SecretBinary": "aHVudGVyMg=="}"#,
                "holds no password",
            ),
            (
                200,
                r#"{"SecretString": "{\"hunter2\": 1}"}"#,
                "without the text \"password\"",
            ),
        ] {
            let (login, _asked) = secrets_manager(vec![(status, body)]);
            let said = login.credentials().await.err().map(|e| e.to_string());
            let said = said.unwrap_or_default();
            assert!(said.contains(part) && said.contains(ARN), "{said}");
            assert!(!said.contains("hunter2"), "{said}");
        }
    }

    fn identity(serverless: bool) -> IamIdentity {
        IamIdentity {
            user: "fns-51af3dc0".into(),
            cache: "Sendslot-cache".into(),
            serverless,
        }
    }

    fn signed(serverless: bool, session: Option<&str>) -> String {
        let keys = AwsKeys::new(
            "AKIDEXAMPLE",
            "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
            session.map(str::to_owned),
            None,
            "test",
        );
        // 2026-11-30T09:08:07Z
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_796_029_687);
        token(&identity(serverless), "eu-west-1", keys, now).unwrap_or_else(|e| panic!("{e}"))
    }

    /// The parts in order of their names, since their order in the token is not signed.
    fn parts(token: &str) -> (&str, Vec<&str>) {
        let (host, query) = token.split_once("/?").unwrap_or_default();
        let mut parts: Vec<_> = query.split('&').collect();
        parts.sort_unstable();
        (host, parts)
    }

    /// What botocore 1.43.106 (`RequestSigner.generate_presigned_url` for service `elasticache` in `eu-west-1`, expiring in
    /// 900 s, with `get_current_datetime` set to this time) makes of the same keys, cache and user.
    #[test]
    fn tokens_are_those_of_another_signer() {
        assert_eq!(
            parts(&signed(false, None)),
            parts(
                "sendslot-cache/?Action=connect&User=fns-51af3dc0&X-Amz-Algorithm=AWS4-HMAC-SHA256\
                 &X-Amz-Credential=AKIDEXAMPLE%2F20261130%2Feu-west-1%2Felasticache%2Faws4_request\
                 &X-Amz-Date=20261130T090807Z&X-Amz-Expires=900&X-Amz-SignedHeaders=host\
                 &X-Amz-Signature=332cc638ab9d776eabeec0ea00606525aa29b634d3b88676ff32fc8d0f423ad8"
            )
        );
        assert_eq!(
            parts(&signed(true, Some("IQoJb3JpZ2luX2Vj/EXAMPLE+token=="))),
            parts(
                "sendslot-cache/?Action=connect&User=fns-51af3dc0&ResourceType=ServerlessCache\
                 &X-Amz-Algorithm=AWS4-HMAC-SHA256\
                 &X-Amz-Credential=AKIDEXAMPLE%2F20261130%2Feu-west-1%2Felasticache%2Faws4_request\
                 &X-Amz-Date=20261130T090807Z&X-Amz-Expires=900&X-Amz-SignedHeaders=host\
                 &X-Amz-Security-Token=IQoJb3JpZ2luX2Vj%2FEXAMPLE%2Btoken%3D%3D\
                 &X-Amz-Signature=9109dbb951b08cb3d960b370ce7d26e25afdd9c1954d6ef42593db2b974a11f2"
            )
        );
    }

    #[tokio::test]
    async fn each_connection_gets_a_token_for_its_user_and_twelve_hours() {
        let keys = AwsKeys::new("AKIDEXAMPLE", "secret", None, None, "test");
        let aws = SdkConfig::builder()
            .region(Region::new("eu-west-1"))
            .credentials_provider(SharedCredentialsProvider::new(keys))
            .build();
        let of = |aws: &SdkConfig| login(&RedisLogin::Iam(identity(false)), aws);
        let iam = of(&aws).unwrap_or_else(|| panic!("no login"));
        let given = iam.credentials().await.unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(given.user.as_deref(), Some("fns-51af3dc0"));
        assert_eq!(given.lasts, Some(Duration::from_hours(12)));
        assert!(
            given
                .password
                .starts_with("sendslot-cache/?Action=connect&")
        );
        assert!(iam.look_at().contains("elasticache:Connect"));

        let nowhere = of(&SdkConfig::builder().build()).unwrap_or_else(|| panic!("no login"));
        let said = nowhere.credentials().await.err().map(|e| e.to_string());
        assert!(said.is_some_and(|said| said.contains("set AWS_REGION")));
        assert!(login(&RedisLogin::Url, &aws).is_none());
    }

    #[test]
    fn a_secret_is_a_password_or_json() {
        let plain = parse("pa{ss}word\n");
        let plain = plain.map(|c| (c.user, c.password, c.lasts));
        assert_eq!(plain, Ok((None, "pa{ss}word".into(), None)));
        let json = parse(r#"{"username": "fns", "password": "s3cret", "engine": "redis"}"#);
        let json = json.map(|c| (c.user, c.password));
        assert_eq!(json, Ok((Some("fns".into()), "s3cret".into())));
        let nameless = parse(r#"{"password": "s3cret"}"#);
        assert_eq!(
            nameless.map(|c| (c.user, c.password)),
            Ok((None, "s3cret".into()))
        );
    }

    #[test]
    fn what_is_wrong_with_a_secret_is_said_without_it() {
        for (secret, part) in [
            ("", "no password"),
            (" \n", "no password"),
            (r#"{"password": ""}"#, "no password"),
            (r#"{"password": 12345}"#, "without the text"),
            (r#"{"passwort": "hunter2"}"#, "without the text"),
            (r#"{"password": "hunter2""#, "no JSON"),
        ] {
            let said = parse(secret).err().unwrap_or_default();
            assert!(said.contains(part), "{secret}: {said}");
            assert!(!said.contains("hunter2"), "{said}");
        }
        let shown = format!("{:?}", parse("hunter2"));
        assert!(!shown.contains("hunter2"), "{shown}");
    }

    fn with(password: &str) -> Credentials {
        Credentials {
            user: None,
            password: password.into(),
            lasts: None,
        }
    }

    /// When a secret is fetched that Redis refuses every second, in seconds from the first refusal.
    fn fetches(mut secret: impl FnMut(u64) -> &'static str, seconds: u64) -> Vec<u64> {
        let (mut held, start) = (Held::default(), Instant::now());
        held.take(with("old"), start);
        let start = start + Duration::from_hours(1);
        let mut fetched = Vec::new();
        for second in 0..seconds {
            let now = start + Duration::from_secs(second);
            let kept = match held.next(now) {
                Next::Keep(kept) => kept,
                Next::Fetch(_) => {
                    fetched.push(second);
                    held.take(with(secret(second)), now);
                    with(secret(second))
                }
            };
            held.refuse(&kept);
        }
        fetched
    }

    #[test]
    fn a_refused_secret_is_fetched_at_once_and_then_ever_more_seldom() {
        let fetched = fetches(|_| "old", 2000);
        assert_eq!(
            fetched,
            [1, 11, 31, 71, 151, 311, 611, 911, 1211, 1511, 1811]
        );
        // A new one that is refused, too, has its own pauses.
        let fetched = fetches(|second| if second < 100 { "old" } else { "new" }, 200);
        assert_eq!(fetched, [1, 11, 31, 71, 151, 156, 166, 186]);
    }

    #[test]
    fn a_secret_that_works_is_never_fetched_again() {
        let (mut held, start) = (Held::default(), Instant::now());
        assert!(matches!(held.next(start), Next::Fetch(None)));
        held.take(with("new"), start);
        // A connection from before the change is refused late.
        held.refuse(&with("old"));
        let later = start + Duration::from_hours(24);
        assert!(matches!(held.next(later), Next::Keep(kept) if kept == with("new")));
    }
}
