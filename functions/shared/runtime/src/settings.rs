//! The environment, read once at start-up. Whatever is missing or wrong in it is reported in one
//! error, each variable by name with an example of what it should hold.

use std::{env, fmt, str::FromStr};

use aws_config::SdkConfig;
use sendslot_domain::{
    Budget, Millis, Rate, TenantName,
    budget::{BudgetError, Settings as BudgetNumbers},
    window::Caps,
};
use sendslot_schedule::{Keys, Schedule, ScheduleError, Seed, Tenant as SeedTenant};

use crate::{
    ByLane, Queue,
    redis_auth::{self, IamIdentity},
};

/// The longest that mail waits for its confirmation: what a queue can delay a message.
const LONGEST_CONFIRMATION: Millis = Millis::from_secs(900);
/// The longest age: SQS keeps no message longer.
const LONGEST_AGE: Millis = Millis::from_secs(14 * 86_400);

/// What both functions need.
#[derive(Clone)]
pub struct Settings {
    /// The function's name in logs and metrics (`POWERTOOLS_SERVICE_NAME`).
    pub service: String,
    /// Where its metrics go (`POWERTOOLS_METRICS_NAMESPACE`).
    pub namespace: String,
    /// Where Redis is; may hold a password (`SENDSLOT_REDIS_URL`).
    pub redis_url: String,
    /// As whom Redis is used, if not as the URL says.
    pub redis_login: RedisLogin,
    /// The keys of the budget that is named in `SENDSLOT_BUDGET`.
    pub keys: Keys,
    /// The budget as deployed.
    pub seed: BudgetSettings,
    /// A message first seen longer ago is expired (`SENDSLOT_MAX_MESSAGE_AGE_SECONDS`).
    pub max_message_age: Millis,
    /// The queues that hold mail until its slot (`SENDSLOT_<LANE>_SEND_QUEUE_URL`).
    pub send_queues: ByLane<Queue>,
    /// What is done while Redis can't be used (`SENDSLOT_REDIS_DOWN`).
    pub redis_down: RedisDown,
    /// The S3 bucket of parked mail (`SENDSLOT_PARKING_BUCKET`).
    pub parking_bucket: String,
}

/// Where the user and password for Redis come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RedisLogin {
    /// The URL says them, or there are none.
    Url,
    /// Tokens of the function's role stand for them (`SENDSLOT_REDIS_IAM_USER`, `SENDSLOT_REDIS_IAM_CACHE`).
    Iam(IamIdentity),
    /// A secret of Secrets Manager holds them (`SENDSLOT_REDIS_SECRET_ARN`).
    Secret {
        /// The secret.
        arn: String,
    },
}

/// What is done while Redis can't be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RedisDown {
    /// Mail goes back to its queue, for longer each time.
    Hold,
    /// Mail goes at a fixed pace, without reservations: it may go twice.
    Capped,
}

/// What is done with a mail that may have been sent, when no event has said so in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UncertainPolicy {
    /// It is sent, perhaps again.
    Resend,
    /// It is parked, perhaps sent.
    Park,
}

impl fmt::Debug for Settings {
    /// Leaves the Redis URL out: it may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("service", &self.service)
            .field("redis_login", &self.redis_login)
            .field("keys", &self.keys)
            .field("seed", &self.seed)
            .field("max_message_age", &self.max_message_age)
            .field("send_queues", &self.send_queues)
            .finish_non_exhaustive()
    }
}

impl Settings {
    /// The schedule in Redis. Nothing is sent, to Redis or AWS, before its first call.
    ///
    /// # Errors
    /// When the URL can't be one of Redis.
    pub fn schedule(&self, aws: &SdkConfig) -> Result<Schedule, ScheduleError> {
        schedule(&self.redis_url, &self.keys, &self.redis_login, aws)
    }
}

fn schedule(
    url: &str,
    keys: &Keys,
    login: &RedisLogin,
    aws: &SdkConfig,
) -> Result<Schedule, ScheduleError> {
    match redis_auth::login(login, aws) {
        None => Schedule::connect(url, keys.clone()),
        Some(login) => Schedule::connect_as(url, keys.clone(), login),
    }
}

/// A budget as deployed: what Redis is set up with until something else knows better.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetSettings {
    /// What may be sent (`SENDSLOT_LIMIT`, `_DAILY_QUOTA`, `_HOURLY_CAP`, `_HEADROOM`, `_GUARD`, `_BURST`,
    /// `_RESERVE`, `_SLICE`, `_HORIZON_SECONDS`).
    pub budget: Budget,
    /// On whose behalf mail may go (`SENDSLOT_TENANTS`); empty only if the account is followed.
    pub tenants: Vec<Tenant>,
    /// Whether `control` sets the budget and the tenants, by what the account may send (`SENDSLOT_BUDGET_SOURCE` is `account`, not
    /// `deploy`). Then nothing is booked or sent until it has, and these numbers are only its bounds.
    pub follows_account: bool,
}

impl BudgetSettings {
    /// What to write into Redis.
    #[must_use]
    pub fn seed(&self) -> Seed {
        Seed {
            source: "deploy".to_owned(),
            budget: self.budget,
            tenants: self
                .tenants
                .iter()
                .map(|tenant| (tenant.name.clone(), tenant.seed()))
                .collect(),
        }
    }
}

/// One tenant, as deployed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenant {
    /// Its name.
    pub name: TenantName,
    /// The SES configuration set its mail goes through, if it has one.
    pub configuration_set: Option<String>,
    /// Its part of the bulk rate in relation to the others' while they wait, too; 1 to
    /// [`SeedTenant::MAX_WEIGHT`].
    pub weight: u32,
}

impl Tenant {
    /// What the schedule knows of it.
    fn seed(&self) -> SeedTenant {
        SeedTenant {
            weight: self.weight,
            ..SeedTenant::default()
        }
    }
}

/// What `reserve` needs.
#[derive(Clone, Debug)]
pub struct ReserveSettings {
    /// What both functions need.
    pub common: Settings,
    /// Where producers put requests (`SENDSLOT_<LANE>_INTAKE_QUEUE_URL`).
    pub intake_queues: ByLane<Queue>,
    /// Where refused requests go (`SENDSLOT_<LANE>_INTAKE_DLQ_URL`).
    pub intake_dlqs: ByLane<Queue>,
    /// Whether slots are booked for mail that somebody else sends (`SENDSLOT_SLOTS_ONLY`, `on` or `off`).
    pub slots_only: bool,
}

/// What `send` needs.
#[derive(Clone, Debug)]
pub struct SendSettings {
    /// What both functions need.
    pub common: Settings,
    /// Where mail goes that can't be sent (`SENDSLOT_<LANE>_SEND_DLQ_URL`).
    pub send_dlqs: ByLane<Queue>,
    /// How long a claim lives (`SENDSLOT_LEASE_SECONDS`): longer than the function's timeout, shorter
    /// than the queue's visibility timeout.
    pub lease: Millis,
    /// What is done with mail that may have been sent (`SENDSLOT_<LANE>_UNCERTAIN`).
    pub uncertain: ByLane<UncertainPolicy>,
    /// How long such mail waits for the event that says so (`SENDSLOT_CONFIRMATION_SECONDS`).
    pub confirmation: Millis,
    /// How many batches of each lane are sent at once at most (`SENDSLOT_SEND_CONCURRENCY`).
    pub concurrency: u32,
    /// Whether no mail leaves, and all else is as if it did (`SENDSLOT_SHADOW`, `on` or `off`).
    pub shadow: bool,
}

/// What `control` needs: Redis, what makes the account's numbers a budget, and where parked mail is and goes.
#[derive(Clone)]
pub struct ControlSettings {
    /// The function's name in logs and metrics (`POWERTOOLS_SERVICE_NAME`).
    pub service: String,
    /// Where its metrics go (`POWERTOOLS_METRICS_NAMESPACE`).
    pub namespace: String,
    redis_url: String,
    redis_login: RedisLogin,
    /// The keys of the budget that is named in `SENDSLOT_BUDGET`.
    pub keys: Keys,
    /// The most that is taken from the account, recipients per second; what holds while the account was never known
    /// (`SENDSLOT_LIMIT`, may be left out).
    pub limit: Option<Rate>,
    /// The same for recipients in any 24 hours (`SENDSLOT_DAILY_QUOTA`, may be left out).
    pub daily_quota: Option<u64>,
    /// What makes a budget beside its limit and its quota, which stand for nothing here; as [`BudgetSettings::budget`].
    pub numbers: BudgetNumbers,
    /// Tenants as deployed; none is fine, they may all have parameters (`SENDSLOT_TENANTS`).
    pub tenants: Vec<Tenant>,
    /// The S3 bucket of parked mail (`SENDSLOT_PARKING_BUCKET`).
    pub parking_bucket: String,
    /// The queues that parked mail goes to when it is released (`SENDSLOT_<LANE>_SEND_QUEUE_URL`).
    pub send_queues: ByLane<Queue>,
    /// Where refused requests go again (`SENDSLOT_<LANE>_INTAKE_QUEUE_URL`).
    pub intake_queues: ByLane<Queue>,
    /// Where refused requests are (`SENDSLOT_<LANE>_INTAKE_DLQ_URL`).
    pub intake_dlqs: ByLane<Queue>,
    /// Where mail is that couldn't be sent (`SENDSLOT_<LANE>_SEND_DLQ_URL`).
    pub send_dlqs: ByLane<Queue>,
    /// A message first seen longer ago is expired (`SENDSLOT_MAX_MESSAGE_AGE_SECONDS`).
    pub max_message_age: Millis,
}

impl ControlSettings {
    /// Reads the process environment.
    ///
    /// # Errors
    /// When a variable is missing or wrong; the error names all of them.
    pub fn from_env() -> Result<Self, SettingsError> {
        Self::read(|name| env::var(name).ok())
    }

    /// Reads the variables that `get` knows.
    ///
    /// # Errors
    /// As [`ControlSettings::from_env`].
    pub fn read(get: impl Fn(&str) -> Option<String>) -> Result<Self, SettingsError> {
        let mut vars = Variables::new(&get);
        let service = vars.text("POWERTOOLS_SERVICE_NAME", None, "control");
        let namespace = vars.text("POWERTOOLS_METRICS_NAMESPACE", Some("Sendslot"), "Sendslot");
        let redis_url = vars.redis_url();
        let redis_login = vars.redis_login(redis_url.as_deref());
        let keys = vars.parsed("SENDSLOT_BUDGET", Some("ses"), "ses", Keys::of);
        let limit = vars.parsed("SENDSLOT_LIMIT", Some(""), "14/s", |text| match text {
            "" => Ok(None),
            text => above_zero(text).map(Some),
        });
        let daily_quota = vars.parsed("SENDSLOT_DAILY_QUOTA", Some(""), "50000", cap);
        let numbers = vars.numbers();
        if let Some(numbers) = numbers {
            // A burst or a reserve too large for the account's limit is cut when that is known.
            let _budget = vars.checked(BudgetNumbers {
                burst: None,
                ..numbers
            });
        }
        let example = "acme=acme-set,beta";
        let tenants = vars.parsed("SENDSLOT_TENANTS", Some(""), example, |text| match text {
            "" => Ok(Vec::new()),
            text => tenants(text),
        });
        let parking_bucket = vars.parking_bucket();
        let send_queues = vars.queues("SEND_QUEUE");
        let intake_queues = vars.queues("INTAKE_QUEUE");
        let intake_dlqs = vars.queues("INTAKE_DLQ");
        let send_dlqs = vars.queues("SEND_DLQ");
        let max_message_age = vars.max_message_age();
        vars.finish((|| {
            Some(Self {
                service: service?,
                namespace: namespace?,
                redis_url: redis_url?,
                redis_login: redis_login?,
                keys: keys?,
                limit: limit?,
                daily_quota: daily_quota?,
                numbers: numbers?,
                tenants: tenants?,
                parking_bucket: parking_bucket?,
                send_queues: send_queues?,
                intake_queues: intake_queues?,
                intake_dlqs: intake_dlqs?,
                send_dlqs: send_dlqs?,
                max_message_age: max_message_age?,
            })
        })())
    }

    /// The schedule in Redis. Nothing is sent, to Redis or AWS, before its first call.
    ///
    /// # Errors
    /// When the URL can't be one of Redis.
    pub fn schedule(&self, aws: &SdkConfig) -> Result<Schedule, ScheduleError> {
        schedule(&self.redis_url, &self.keys, &self.redis_login, aws)
    }
}

/// What `feedback` needs: Redis, and how long messages live.
#[derive(Clone)]
pub struct FeedbackSettings {
    /// The function's name in logs and metrics (`POWERTOOLS_SERVICE_NAME`).
    pub service: String,
    /// Where its metrics go (`POWERTOOLS_METRICS_NAMESPACE`).
    pub namespace: String,
    redis_url: String,
    redis_login: RedisLogin,
    /// The keys of the budget that is named in `SENDSLOT_BUDGET`.
    pub keys: Keys,
    /// A message first seen longer ago is expired (`SENDSLOT_MAX_MESSAGE_AGE_SECONDS`).
    pub max_message_age: Millis,
}

impl FeedbackSettings {
    /// Reads the process environment.
    ///
    /// # Errors
    /// When a variable is missing or wrong; the error names all of them.
    pub fn from_env() -> Result<Self, SettingsError> {
        Self::read(|name| env::var(name).ok())
    }

    /// Reads the variables that `get` knows.
    ///
    /// # Errors
    /// As [`FeedbackSettings::from_env`].
    pub fn read(get: impl Fn(&str) -> Option<String>) -> Result<Self, SettingsError> {
        let mut vars = Variables::new(&get);
        let service = vars.text("POWERTOOLS_SERVICE_NAME", None, "feedback");
        let namespace = vars.text("POWERTOOLS_METRICS_NAMESPACE", Some("Sendslot"), "Sendslot");
        let redis_url = vars.redis_url();
        let redis_login = vars.redis_login(redis_url.as_deref());
        let keys = vars.parsed("SENDSLOT_BUDGET", Some("ses"), "ses", Keys::of);
        let max_message_age = vars.seconds(
            "SENDSLOT_MAX_MESSAGE_AGE_SECONDS",
            Some("1209600"),
            LONGEST_AGE,
            "1209600",
        );
        vars.finish((|| {
            Some(Self {
                service: service?,
                namespace: namespace?,
                redis_url: redis_url?,
                redis_login: redis_login?,
                keys: keys?,
                max_message_age: max_message_age?,
            })
        })())
    }

    /// The schedule in Redis. Nothing is sent, to Redis or AWS, before its first call.
    ///
    /// # Errors
    /// When the URL can't be one of Redis.
    pub fn schedule(&self, aws: &SdkConfig) -> Result<Schedule, ScheduleError> {
        schedule(&self.redis_url, &self.keys, &self.redis_login, aws)
    }
}

/// Everything that is wrong with the environment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("bad settings: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub struct SettingsError(pub Vec<Problem>);

/// One variable's problem.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{variable} {what}, set it to for example {example:?}")]
pub struct Problem {
    /// The variable.
    pub variable: String,
    /// What is wrong with it.
    pub what: String,
    /// What it could hold.
    pub example: &'static str,
}

impl ReserveSettings {
    /// Reads the process environment.
    ///
    /// # Errors
    /// When a variable is missing or wrong; the error names all of them.
    pub fn from_env() -> Result<Self, SettingsError> {
        Self::read(|name| env::var(name).ok())
    }

    /// Reads the variables that `get` knows.
    ///
    /// # Errors
    /// As [`ReserveSettings::from_env`].
    pub fn read(get: impl Fn(&str) -> Option<String>) -> Result<Self, SettingsError> {
        let mut vars = Variables::new(&get);
        let common = vars.common();
        let intake_queues = vars.queues("INTAKE_QUEUE");
        let intake_dlqs = vars.queues("INTAKE_DLQ");
        let slots_only = vars.parsed("SENDSLOT_SLOTS_ONLY", Some("off"), "off", switch);
        vars.finish((|| {
            Some(Self {
                common: common?,
                intake_queues: intake_queues?,
                intake_dlqs: intake_dlqs?,
                slots_only: slots_only?,
            })
        })())
    }
}

impl SendSettings {
    /// Reads the process environment.
    ///
    /// # Errors
    /// When a variable is missing or wrong; the error names all of them.
    pub fn from_env() -> Result<Self, SettingsError> {
        Self::read(|name| env::var(name).ok())
    }

    /// Reads the variables that `get` knows.
    ///
    /// # Errors
    /// As [`SendSettings::from_env`].
    pub fn read(get: impl Fn(&str) -> Option<String>) -> Result<Self, SettingsError> {
        let mut vars = Variables::new(&get);
        let common = vars.common();
        let send_dlqs = vars.queues("SEND_DLQ");
        let lease = vars.seconds(
            "SENDSLOT_LEASE_SECONDS",
            None,
            Millis::from_secs(43_200),
            "60",
        );
        let uncertain = vars.uncertain();
        let confirmation = vars.seconds(
            "SENDSLOT_CONFIRMATION_SECONDS",
            Some("300"),
            LONGEST_CONFIRMATION,
            "300",
        );
        let concurrency = vars.parsed("SENDSLOT_SEND_CONCURRENCY", Some("20"), "20", concurrency);
        let shadow = vars.parsed("SENDSLOT_SHADOW", Some("off"), "off", switch);
        vars.finish((|| {
            Some(Self {
                common: common?,
                send_dlqs: send_dlqs?,
                lease: lease?,
                uncertain: uncertain?,
                confirmation: confirmation?,
                concurrency: concurrency?,
                shadow: shadow?,
            })
        })())
    }
}

/// Reads variables and collects what is wrong with them.
struct Variables<'a> {
    get: &'a dyn Fn(&str) -> Option<String>,
    problems: Vec<Problem>,
}

impl<'a> Variables<'a> {
    fn new(get: &'a dyn Fn(&str) -> Option<String>) -> Self {
        Self {
            get,
            problems: Vec::new(),
        }
    }

    fn finish<T>(self, read: Option<T>) -> Result<T, SettingsError> {
        match read {
            Some(settings) if self.problems.is_empty() => Ok(settings),
            _ => Err(SettingsError(self.problems)),
        }
    }

    fn common(&mut self) -> Option<Settings> {
        // Each is read before any `?`, so that every problem is found.
        let service = self.text("POWERTOOLS_SERVICE_NAME", None, "reserve");
        let namespace = self.text("POWERTOOLS_METRICS_NAMESPACE", Some("Sendslot"), "Sendslot");
        let redis_url = self.redis_url();
        let redis_login = self.redis_login(redis_url.as_deref());
        let keys = self.parsed("SENDSLOT_BUDGET", Some("ses"), "ses", Keys::of);
        let seed = self.budget();
        let max_message_age = self.max_message_age();
        let send_queues = self.queues("SEND_QUEUE");
        let redis_down = self.parsed("SENDSLOT_REDIS_DOWN", Some("hold"), "hold", redis_down);
        let parking_bucket = self.parking_bucket();
        Some(Settings {
            service: service?,
            namespace: namespace?,
            redis_url: redis_url?,
            redis_login: redis_login?,
            keys: keys?,
            seed: seed?,
            max_message_age: max_message_age?,
            send_queues: send_queues?,
            redis_down: redis_down?,
            parking_bucket: parking_bucket?,
        })
    }

    fn max_message_age(&mut self) -> Option<Millis> {
        self.seconds(
            "SENDSLOT_MAX_MESSAGE_AGE_SECONDS",
            Some("1209600"),
            LONGEST_AGE,
            "1209600",
        )
    }

    fn parking_bucket(&mut self) -> Option<String> {
        self.text("SENDSLOT_PARKING_BUCKET", None, "sendslot-parked")
    }

    /// What each lane does with mail that may have been sent.
    fn uncertain(&mut self) -> Option<ByLane<UncertainPolicy>> {
        let mut of = |lane: &str, default| {
            let variable = format!("SENDSLOT_{lane}_UNCERTAIN");
            self.parsed(&variable, Some(default), default, uncertain_policy)
        };
        let (priority, bulk) = (of("PRIORITY", "resend"), of("BULK", "park"));
        Some(ByLane {
            priority: priority?,
            bulk: bulk?,
        })
    }

    fn budget(&mut self) -> Option<BudgetSettings> {
        let source = self.parsed(
            "SENDSLOT_BUDGET_SOURCE",
            Some("deploy"),
            "account",
            follows_account,
        );
        let follows = source == Some(true);
        let none = follows.then_some("");
        let limit = self.parsed("SENDSLOT_LIMIT", none, "14/s", |text| match text {
            "" if follows => Ok(None),
            text => above_zero(text).map(Some),
        });
        let numbers = self.numbers();
        let day = self.parsed("SENDSLOT_DAILY_QUOTA", Some(""), "50000", cap);
        let example = "acme=acme-set,beta";
        let tenants = self.parsed("SENDSLOT_TENANTS", none, example, |text| match text {
            "" if follows => Ok(Vec::new()),
            text => tenants(text),
        });
        let mut numbers = numbers?;
        numbers.caps.day = day?;
        if let Some(limit) = limit? {
            numbers.limit = limit;
        }
        if follows {
            numbers.burst = None; // made to fit once the account's limit is known
        }
        let budget = self.checked(numbers);
        Some(BudgetSettings {
            budget: budget?,
            tenants: tenants?,
            follows_account: source?,
        })
    }

    /// What makes a budget beside its limit, which is one recipient a second here, and its quota, which is none.
    fn numbers(&mut self) -> Option<BudgetNumbers> {
        let headroom = self.parsed("SENDSLOT_HEADROOM", Some("0.9"), "0.9", fraction);
        let guard = self.parsed("SENDSLOT_GUARD", Some("0.95"), "0.95", fraction);
        let burst = self.parsed("SENDSLOT_BURST", Some(""), "1", burst);
        let reserve = self.parsed("SENDSLOT_RESERVE", Some("0/s"), "2/s", rate);
        let slice = self.parsed("SENDSLOT_SLICE", Some("0.05"), "0.05", slice);
        let hour = self.parsed("SENDSLOT_HOURLY_CAP", Some(""), "1000", cap);
        let horizon = self.seconds(
            "SENDSLOT_HORIZON_SECONDS",
            Some("60"),
            Budget::LONGEST_HORIZON,
            "60",
        );
        Some(BudgetNumbers {
            limit: Rate::ONE,
            headroom: headroom?,
            guard: guard?,
            burst: burst?,
            reserve: reserve?,
            slice: slice?,
            caps: Caps {
                hour: hour?,
                day: None,
            },
            horizon: horizon?,
        })
    }

    fn checked(&mut self, numbers: BudgetNumbers) -> Option<Budget> {
        match Budget::new(numbers) {
            Ok(budget) => Some(budget),
            // Each number is fine alone; together they make no budget.
            Err(e) => {
                let (variable, example) = match e {
                    BudgetError::Fractions { .. } => ("SENDSLOT_HEADROOM", "0.9"),
                    BudgetError::Burst(_) => ("SENDSLOT_BURST", ""),
                    BudgetError::Horizon(_) => ("SENDSLOT_HORIZON_SECONDS", "60"),
                    BudgetError::NoLimit(_) => ("SENDSLOT_LIMIT", "14/s"),
                    BudgetError::Slice(_) => ("SENDSLOT_SLICE", "0.05"),
                    BudgetError::Cap(_) => ("SENDSLOT_DAILY_QUOTA", ""),
                };
                self.problem(
                    variable,
                    format!("doesn't fit the other numbers: {e}"),
                    example,
                );
                None
            }
        }
    }

    /// The URLs of both lanes' queues of one kind.
    fn queues(&mut self, kind: &str) -> Option<ByLane<Queue>> {
        let mut queue = |lane: &str| {
            let variable = format!("SENDSLOT_{lane}_{kind}_URL");
            let example = "https://sqs.eu-west-1.amazonaws.com/123456789012/bulk";
            self.parsed(&variable, None, example, Queue::from_str)
        };
        let (priority, bulk) = (queue("PRIORITY"), queue("BULK"));
        Some(ByLane {
            priority: priority?,
            bulk: bulk?,
        })
    }

    fn redis_url(&mut self) -> Option<String> {
        let variable = "SENDSLOT_REDIS_URL";
        let example = "rediss://cache.example.com:6379";
        let url = self.text(variable, None, example)?;
        if ["redis://", "rediss://"]
            .iter()
            .any(|scheme| url.starts_with(scheme))
        {
            return Some(url);
        }
        // Not shown: what is there may hold a password.
        self.problem(
            variable,
            "starts with neither redis:// nor rediss://".into(),
            example,
        );
        None
    }

    /// At most one way to log in, and none beside a password in the URL.
    fn redis_login(&mut self, url: Option<&str>) -> Option<RedisLogin> {
        const USER: &str = "SENDSLOT_REDIS_IAM_USER";
        const CACHE: &str = "SENDSLOT_REDIS_IAM_CACHE";
        const SECRET: &str = "SENDSLOT_REDIS_SECRET_ARN";
        let arn = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:redis-AbCdEf";
        let user = self.parsed(USER, Some(""), "sendslot", elasticache_name)?;
        let cache = self.parsed(CACHE, Some(""), "sendslot", elasticache_name)?;
        let secret = self.parsed(SECRET, Some(""), arn, secret_arn)?;
        let login = match (user, cache, secret) {
            (None, None, None) => return Some(RedisLogin::Url),
            (Some(user), Some(cache), None) => RedisLogin::Iam(IamIdentity {
                user,
                cache,
                serverless: url.is_some_and(is_serverless),
            }),
            (None, None, Some(arn)) => RedisLogin::Secret { arn },
            (Some(_), None, None) => {
                self.problem(CACHE, format!("is not set, but {USER} is"), "sendslot");
                return None;
            }
            (None, Some(_), None) => {
                self.problem(USER, format!("is not set, but {CACHE} is"), "sendslot");
                return None;
            }
            (_, _, Some(_)) => {
                let what = format!("is set beside {USER} or {CACHE}: keep one, or");
                self.problem(SECRET, what, arn);
                return None;
            }
        };
        let (variable, example) = ("SENDSLOT_REDIS_URL", "rediss://cache.example.com:6379");
        if url.is_some_and(has_password) {
            let what = "holds a password beside a role or secret that is to give one: keep one";
            self.problem(variable, what.into(), example);
            return None;
        }
        // ElastiCache knows IAM only over TLS; elsewhere the token would be there for all to read.
        if matches!(login, RedisLogin::Iam(_))
            && !url.is_none_or(|url| url.starts_with("rediss://"))
        {
            let what = format!("has no TLS, which {USER} needs");
            self.problem(variable, what, example);
            return None;
        }
        Some(login)
    }

    /// Whole seconds, from 1 to `longest`.
    fn seconds(
        &mut self,
        variable: &str,
        default: Option<&str>,
        longest: Millis,
        example: &'static str,
    ) -> Option<Millis> {
        self.parsed(variable, default, example, |text| {
            let seconds = text.parse::<u64>().ok();
            let millis = seconds
                .filter(|s| (1..=longest.whole_secs()).contains(s))
                .map(Millis::from_secs);
            millis.ok_or_else(|| format!("no whole seconds from 1 to {}", longest.whole_secs()))
        })
    }

    fn text(
        &mut self,
        variable: &str,
        default: Option<&str>,
        example: &'static str,
    ) -> Option<String> {
        self.parsed(variable, default, example, |text| match text {
            "" => Err("empty"),
            text => Ok(text.to_owned()),
        })
    }

    /// What `parse` makes of the variable, or of `default` when it isn't set. A variable that is set
    /// to nothing counts as not set, unless its default is nothing.
    fn parsed<T, E: fmt::Display>(
        &mut self,
        variable: &str,
        default: Option<&str>,
        example: &'static str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        let found = (self.get)(variable).filter(|text| !text.trim().is_empty());
        let Some(text) = found.as_deref().map(str::trim).or(default) else {
            self.problem(variable, "is not set".into(), example);
            return None;
        };
        match parse(text) {
            Ok(value) => Some(value),
            Err(e) => {
                self.problem(variable, format!("is {text:?}: {e}"), example);
                None
            }
        }
    }

    fn problem(&mut self, variable: &str, what: String, example: &'static str) {
        self.problems.push(Problem {
            variable: variable.to_owned(),
            what,
            example,
        });
    }
}

fn rate(text: &str) -> Result<Rate, String> {
    text.parse::<Rate>().map_err(|e| e.to_string())
}

fn above_zero(text: &str) -> Result<Rate, String> {
    let rate = rate(text)?;
    if rate.is_zero() {
        return Err("nothing could ever be sent".into());
    }
    Ok(rate)
}

/// A part of the limit: above 0 and at most 1.
fn fraction(text: &str) -> Result<Rate, String> {
    let part = rate(text)
        .ok()
        .filter(|part| !text.contains('/') && !part.is_zero());
    part.filter(|part| part.num() <= part.den())
        .ok_or_else(|| "no number above 0 and at most 1".into())
}

fn burst(text: &str) -> Result<Option<u32>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let recipients = text.parse::<u32>().ok().filter(|n| *n > 0);
    let recipients =
        recipients.ok_or_else(|| "no whole number of recipients above 0".to_owned())?;
    Ok(Some(recipients))
}

/// A part of a second: 0 up to a half.
fn slice(text: &str) -> Result<Rate, String> {
    let part = rate(text).ok().filter(|_| !text.contains('/'));
    part.filter(|part| *part <= Rate::HALF)
        .ok_or_else(|| "no number from 0 to 0.5".into())
}

/// Recipients; nothing is no cap.
fn cap(text: &str) -> Result<Option<u64>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let recipients = text.parse::<u64>().ok();
    let recipients = recipients.filter(|n| (1..=Caps::MAX).contains(n));
    recipients
        .map(Some)
        .ok_or_else(|| format!("no whole number of recipients from 1 to {}", Caps::MAX))
}

fn follows_account(text: &str) -> Result<bool, &'static str> {
    match text {
        "account" => Ok(true),
        "deploy" => Ok(false),
        _ => Err("neither account nor deploy"),
    }
}

fn redis_down(text: &str) -> Result<RedisDown, &'static str> {
    match text {
        "hold" => Ok(RedisDown::Hold),
        "capped" => Ok(RedisDown::Capped),
        _ => Err("neither hold nor capped"),
    }
}

fn uncertain_policy(text: &str) -> Result<UncertainPolicy, &'static str> {
    match text {
        "resend" => Ok(UncertainPolicy::Resend),
        "park" => Ok(UncertainPolicy::Park),
        _ => Err("neither resend nor park"),
    }
}

fn concurrency(text: &str) -> Result<u32, &'static str> {
    let batches = text.parse().ok().filter(|n| (1..=1000).contains(n));
    batches.ok_or("no whole number from 1 to 1000")
}

/// The id of an `ElastiCache` user, or a cache's name.
fn elasticache_name(text: &str) -> Result<Option<String>, &'static str> {
    let known = |c: char| c.is_ascii_alphanumeric() || c == '-';
    match text {
        "" => Ok(None),
        text if text.len() <= 40 && text.chars().all(known) => Ok(Some(text.to_owned())),
        _ => Err("no name of at most 40 letters, digits and hyphens"),
    }
}

fn secret_arn(text: &str) -> Result<Option<String>, &'static str> {
    let known = |c: char| c.is_ascii_alphanumeric() || "-/_+=.@:".contains(c);
    let parts: Vec<_> = text.split(':').collect();
    match parts[..] {
        [""] => Ok(None),
        ["arn", _, "secretsmanager", _, _, "secret", name]
            if !name.is_empty() && text.chars().all(known) =>
        {
            Ok(Some(text.to_owned()))
        }
        _ => Err("no ARN of a secret"),
    }
}

/// What stands between a URL's scheme and its path.
fn authority(url: &str) -> &str {
    let (_, rest) = url.split_once("://").unwrap_or(("", url));
    rest.split(['/', '?']).next().unwrap_or_default()
}

fn has_password(url: &str) -> bool {
    let (user, _) = authority(url).rsplit_once('@').unwrap_or_default();
    user.split_once(':')
        .is_some_and(|(_, password)| !password.is_empty())
}

/// Whether it is the endpoint of a serverless cache of `ElastiCache`, whose name is
/// `<cache>-<id>.serverless.<region>.cache.amazonaws.com`.
fn is_serverless(url: &str) -> bool {
    authority(url).contains(".serverless.")
}

fn switch(text: &str) -> Result<bool, &'static str> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("neither on nor off"),
    }
}

/// `name` or `name=configuration-set`, either with `:weight` behind it, separated by commas.
fn tenants(text: &str) -> Result<Vec<Tenant>, String> {
    let mut tenants: Vec<Tenant> = Vec::new();
    for entry in text
        .split(',')
        .map(str::trim)
        .filter(|entry| !entry.is_empty())
    {
        let (who, weight) = match entry.split_once(':') {
            None => (entry, None),
            Some((who, weight)) => (who.trim(), Some(weight.trim())),
        };
        let (name, set) = match who.split_once('=') {
            None => (who, None),
            Some((name, set)) => (name.trim(), Some(set.trim())),
        };
        let bad = |e| format!("tenant {name:?}: {e}");
        let tenant = Tenant {
            name: name.parse().map_err(bad)?,
            // A configuration set's name follows the same rules.
            configuration_set: match set {
                None => None,
                Some(set) => Some(set.parse::<TenantName>().map_err(bad)?.to_string()),
            },
            weight: match weight {
                None => SeedTenant::default().weight,
                Some(text) => weighs(text).ok_or_else(|| {
                    let most = SeedTenant::MAX_WEIGHT;
                    format!("tenant {name:?}: weight {text:?} is no whole number from 1 to {most}")
                })?,
            },
        };
        if tenants.iter().any(|known| known.name == tenant.name) {
            return Err(format!("tenant {name:?} is there twice"));
        }
        tenants.push(tenant);
    }
    if tenants.is_empty() {
        return Err("no tenant".into());
    }
    Ok(tenants)
}

fn weighs(text: &str) -> Option<u32> {
    let weight = text.parse().ok()?;
    (1..=SeedTenant::MAX_WEIGHT)
        .contains(&weight)
        .then_some(weight)
}

#[cfg(test)]
mod tests {
    use sendslot_domain::budget::Share;

    use super::*;

    const SET: &[(&str, &str)] = &[
        ("POWERTOOLS_SERVICE_NAME", "reserve"),
        ("SENDSLOT_REDIS_URL", "redis://127.0.0.1:6379"),
        ("SENDSLOT_LIMIT", "100/s"),
        ("SENDSLOT_TENANTS", "acme=acme-set:3, beta, gamma:1000"),
        (
            "SENDSLOT_PRIORITY_SEND_QUEUE_URL",
            "http://sqs/0/priority-send",
        ),
        ("SENDSLOT_BULK_SEND_QUEUE_URL", "http://sqs/0/bulk-send"),
        (
            "SENDSLOT_PRIORITY_INTAKE_QUEUE_URL",
            "http://sqs/0/priority-intake",
        ),
        ("SENDSLOT_BULK_INTAKE_QUEUE_URL", "http://sqs/0/bulk-intake"),
        (
            "SENDSLOT_PRIORITY_INTAKE_DLQ_URL",
            "http://sqs/0/priority-intake-dlq",
        ),
        (
            "SENDSLOT_BULK_INTAKE_DLQ_URL",
            "http://sqs/0/bulk-intake-dlq",
        ),
        (
            "SENDSLOT_PRIORITY_SEND_DLQ_URL",
            "http://sqs/0/priority-send-dlq",
        ),
        ("SENDSLOT_BULK_SEND_DLQ_URL", "http://sqs/0/bulk-send-dlq"),
        ("SENDSLOT_LEASE_SECONDS", "60"),
        ("SENDSLOT_PARKING_BUCKET", "parked"),
    ];

    /// The variables of [`SET`], with some of them set otherwise.
    fn with(changes: &'static [(&str, &str)]) -> impl Fn(&str) -> Option<String> {
        move |name| {
            let set = changes.iter().chain(SET).find(|(known, _)| *known == name);
            set.map(|(_, value)| (*value).to_owned())
        }
    }

    /// What is wrong with one change.
    fn problem(changes: &'static [(&str, &str)]) -> String {
        match ReserveSettings::read(with(changes)) {
            Ok(_) => "nothing".into(),
            Err(e) => e.to_string(),
        }
    }

    #[test]
    fn control_needs_little_and_is_told_all_that_is_wrong() {
        let few = |name: &str| match name {
            "POWERTOOLS_SERVICE_NAME" => Some("control".to_owned()),
            "SENDSLOT_REDIS_URL" => Some("redis://127.0.0.1:6379".to_owned()),
            "SENDSLOT_PARKING_BUCKET" => Some("parked".to_owned()),
            "SENDSLOT_PRIORITY_SEND_QUEUE_URL" => Some("http://sqs/0/priority-send".to_owned()),
            "SENDSLOT_BULK_SEND_QUEUE_URL" => Some("http://sqs/0/bulk-send".to_owned()),
            name if name.ends_with("_URL") => Some("http://sqs/0/another".to_owned()),
            _ => None,
        };
        let settings = ControlSettings::read(few).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!((settings.limit, settings.daily_quota), (None, None));
        assert!(settings.tenants.is_empty());
        assert_eq!(settings.parking_bucket, "parked");
        assert_eq!(settings.send_queues.bulk.name(), "bulk-send");
        assert_eq!(settings.max_message_age, LONGEST_AGE);
        // What makes a budget is what the others take, but for what the account says.
        let deployed = ReserveSettings::read(with(&[])).unwrap_or_else(|e| panic!("{e}"));
        let budget = Budget::new(BudgetNumbers {
            limit: deployed.common.seed.budget.limit(),
            ..settings.numbers
        });
        assert_eq!(budget, Ok(deployed.common.seed.budget));

        let settings = ControlSettings::read(with(&[
            ("SENDSLOT_DAILY_QUOTA", "50000"),
            // Fits a larger limit than the account may have.
            ("SENDSLOT_BURST", "5000"),
        ]));
        let settings = settings.unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(settings.limit, Rate::new(100, 1).ok());
        assert_eq!(settings.daily_quota, Some(50_000));
        assert_eq!(settings.tenants.len(), 3);

        let wrong = ControlSettings::read(with(&[
            ("SENDSLOT_LIMIT", "0/s"),
            ("SENDSLOT_HEADROOM", "0.99"),
            ("SENDSLOT_DAILY_QUOTA", "many"),
            ("SENDSLOT_PARKING_BUCKET", ""),
            ("SENDSLOT_BULK_SEND_QUEUE_URL", "bulk"),
            ("SENDSLOT_MAX_MESSAGE_AGE_SECONDS", "0"),
        ]));
        let text = wrong.err().map_or_else(String::new, |e| e.to_string());
        for variable in [
            "SENDSLOT_LIMIT",
            "SENDSLOT_HEADROOM",
            "SENDSLOT_DAILY_QUOTA",
            "SENDSLOT_PARKING_BUCKET",
            "SENDSLOT_BULK_SEND_QUEUE_URL",
            "SENDSLOT_MAX_MESSAGE_AGE_SECONDS",
        ] {
            assert!(text.contains(variable), "{text}");
        }
    }

    #[test]
    fn feedback_needs_redis_and_little_else() {
        let settings = FeedbackSettings::read(with(&[]));
        let settings = settings.unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(settings.keys.to_string(), "sendslot:{ses}:");
        assert_eq!(settings.max_message_age, LONGEST_AGE);
        let nothing = FeedbackSettings::read(|_| None).err();
        let nothing = nothing.map_or_else(String::new, |e| e.to_string());
        for variable in ["POWERTOOLS_SERVICE_NAME", "SENDSLOT_REDIS_URL"] {
            assert!(nothing.contains(variable), "{nothing}");
        }
    }

    #[test]
    fn what_is_not_set_has_the_deployed_defaults() {
        let settings = ReserveSettings::read(with(&[])).unwrap_or_else(|e| panic!("{e}"));
        let common = settings.common;
        assert_eq!(common.namespace, "Sendslot");
        assert_eq!(common.keys.to_string(), "sendslot:{ses}:");
        assert_eq!(common.max_message_age, LONGEST_AGE);
        let budget = common.seed.budget;
        assert_eq!(budget.horizon(), Millis::from_secs(60));
        assert_eq!(
            (budget.rate().to_string(), budget.burst()),
            ("90/s".into(), 5)
        );
        assert_eq!(budget.slice(), Share { num: 1, den: 20 });
        assert_eq!(budget.caps(), Caps::default());
        let tenants: Vec<_> = common
            .seed
            .tenants
            .iter()
            .map(|t| (t.name.as_str(), t.configuration_set.as_deref(), t.weight))
            .collect();
        let expected = [
            ("acme", Some("acme-set"), 3),
            ("beta", None, 1),
            ("gamma", None, 1000),
        ];
        assert_eq!(tenants, expected);
        let seeded = common.seed.seed().tenants;
        let seeded: Vec<_> = seeded.iter().map(|(_, t)| (t.weight, t.caps)).collect();
        assert_eq!(seeded, [3, 1, 1000].map(|weight| (weight, Caps::default())));
        assert_eq!(settings.intake_dlqs.bulk.name(), "bulk-intake-dlq");
        assert!(!settings.slots_only);
        let send = SendSettings::read(with(&[])).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(send.lease, Millis::from_secs(60));
        let (priority, bulk) = (UncertainPolicy::Resend, UncertainPolicy::Park);
        assert_eq!(send.uncertain, ByLane { priority, bulk });
        assert_eq!(send.confirmation, Millis::from_secs(300));
        assert_eq!(send.common.redis_down, RedisDown::Hold);
    }

    #[test]
    fn what_is_set_reaches_the_budget() {
        let settings = ReserveSettings::read(with(&[
            ("SENDSLOT_SLICE", "0.125"),
            ("SENDSLOT_DAILY_QUOTA", "50000"),
            ("SENDSLOT_HOURLY_CAP", "1000"),
            ("SENDSLOT_SLOTS_ONLY", "on"),
        ]));
        let settings = settings.unwrap_or_else(|e| panic!("{e}"));
        let budget = settings.common.seed.seed().budget;
        assert_eq!(budget.slice(), Share { num: 1, den: 8 });
        let (hour, day) = (Some(1_000), Some(50_000));
        assert_eq!(budget.caps(), Caps { hour, day });
        assert!(settings.slots_only);
    }

    #[test]
    fn every_problem_is_reported_in_one_error() {
        let Err(SettingsError(problems)) = SendSettings::read(|_| None) else {
            panic!("an empty environment was taken")
        };
        let missing: Vec<_> = problems.iter().map(|p| p.variable.as_str()).collect();
        assert_eq!(
            missing,
            [
                "POWERTOOLS_SERVICE_NAME",
                "SENDSLOT_REDIS_URL",
                "SENDSLOT_LIMIT",
                "SENDSLOT_TENANTS",
                "SENDSLOT_PRIORITY_SEND_QUEUE_URL",
                "SENDSLOT_BULK_SEND_QUEUE_URL",
                "SENDSLOT_PARKING_BUCKET",
                "SENDSLOT_PRIORITY_SEND_DLQ_URL",
                "SENDSLOT_BULK_SEND_DLQ_URL",
                "SENDSLOT_LEASE_SECONDS",
            ]
        );
    }

    #[test]
    fn a_problem_names_the_variable_what_it_holds_and_an_example() {
        assert_eq!(
            problem(&[("SENDSLOT_LIMIT", "fast")]),
            "bad settings: SENDSLOT_LIMIT is \"fast\": \"fast\" is no rate: write for example \
             \"100\", \"11.2/s\" or \"20/h\", set it to for example \"14/s\""
        );
        assert_eq!(
            problem(&[("SENDSLOT_HORIZON_SECONDS", "901")]),
            "bad settings: SENDSLOT_HORIZON_SECONDS is \"901\": no whole seconds from 1 to 900, \
             set it to for example \"60\""
        );
        for (changes, part) in [
            (
                &[("SENDSLOT_LIMIT", "0")] as &[_],
                "nothing could ever be sent",
            ),
            (
                &[("SENDSLOT_HEADROOM", "1.1")],
                "no number above 0 and at most 1",
            ),
            (
                &[("SENDSLOT_GUARD", "0")],
                "no number above 0 and at most 1",
            ),
            (&[("SENDSLOT_BURST", "0")], "above 0"),
            (
                &[("SENDSLOT_BURST", "101")],
                "doesn't fit the other numbers",
            ),
            (
                &[("SENDSLOT_HEADROOM", "0.95")],
                "doesn't fit the other numbers",
            ),
            (&[("SENDSLOT_BUDGET", "{ses}")], "holds '{'"),
            (&[("SENDSLOT_TENANTS", "acme,acme")], "there twice"),
            (&[("SENDSLOT_TENANTS", "acme corp")], "tenant \"acme corp\""),
            (&[("SENDSLOT_TENANTS", ",")], "no tenant"),
            (&[("SENDSLOT_TENANTS", "acme:2,acme=set")], "there twice"),
            (
                &[("SENDSLOT_TENANTS", "acme:0")],
                "weight \"0\" is no whole number from 1 to 1000",
            ),
            (&[("SENDSLOT_TENANTS", "acme=set:1001")], "weight"),
            (&[("SENDSLOT_TENANTS", "acme:3=set")], "weight"),
            (&[("SENDSLOT_TENANTS", "acme:")], "weight"),
            (&[("SENDSLOT_SLICE", "0.501")], "no number from 0 to 0.5"),
            (&[("SENDSLOT_SLICE", "0.5/s")], "no number from 0 to 0.5"),
            (&[("SENDSLOT_DAILY_QUOTA", "0")], "no whole number"),
            (
                &[("SENDSLOT_DAILY_QUOTA", "4320000001")],
                "from 1 to 4320000000",
            ),
            (&[("SENDSLOT_HOURLY_CAP", "many")], "no whole number"),
            (&[("SENDSLOT_SLOTS_ONLY", "true")], "neither on nor off"),
            (
                &[("SENDSLOT_REDIS_DOWN", "wait")],
                "neither hold nor capped",
            ),
            (
                &[("SENDSLOT_BULK_INTAKE_DLQ_URL", "bulk-dlq")],
                "no queue URL",
            ),
            (
                &[("SENDSLOT_MAX_MESSAGE_AGE_SECONDS", "-1")],
                "no whole seconds",
            ),
        ] {
            let found = problem(changes);
            assert!(
                found.contains(part) && found.contains(changes[0].0),
                "{found}"
            );
        }
    }

    /// The list of values that the template's own tests use, so that what can be deployed also starts.
    #[test]
    fn the_parser_takes_what_the_template_takes() {
        let list = include_str!("../../../../tests/template/values.json");
        let list: Vec<serde_json::Value> = serde_json::from_str(list).unwrap_or_default();
        let variable = |parameter: &str| {
            let setting = list.iter().find(|s| s["parameter"] == parameter);
            setting.and_then(|s| s["variable"].as_str())
        };
        let (mut tried, mut problems) = (0, Vec::new());
        for setting in &list {
            let mut set: Vec<(&str, &str)> = Vec::new();
            for (parameter, value) in setting["with"].as_object().into_iter().flatten() {
                set.extend(variable(parameter).zip(value.as_str()));
            }
            for value in setting["good"].as_array().into_iter().flatten() {
                tried += 1;
                let own = setting["variable"].as_str().zip(value.as_str());
                // All else as the template has it.
                let defaults = [
                    ("SENDSLOT_BUDGET_SOURCE", "account"),
                    ("SENDSLOT_LIMIT", ""),
                    ("SENDSLOT_RESERVE", "2/s"),
                ];
                let changed: Vec<_> = own
                    .into_iter()
                    .chain(set.iter().copied().chain(defaults))
                    .collect();
                let get = |name: &str| {
                    let found = changed.iter().chain(SET).find(|(known, _)| *known == name);
                    found.map(|(_, value)| (*value).to_owned())
                };
                problems.extend(ReserveSettings::read(get).err().map(|e| e.to_string()));
                problems.extend(SendSettings::read(get).err().map(|e| e.to_string()));
                problems.extend(ControlSettings::read(get).err().map(|e| e.to_string()));
            }
        }
        assert!(tried > 50, "only {tried} values in the list");
        assert!(problems.is_empty(), "{}", problems.join("\n"));
    }

    fn login(changes: &'static [(&str, &str)]) -> RedisLogin {
        let settings = ReserveSettings::read(with(changes)).unwrap_or_else(|e| panic!("{e}"));
        settings.common.redis_login
    }

    #[test]
    fn there_is_one_way_to_log_in_to_redis() {
        assert_eq!(login(&[]), RedisLogin::Url);
        assert_eq!(
            login(&[("SENDSLOT_REDIS_URL", "redis://us:pw@cache")]),
            RedisLogin::Url
        );
        let iam = |serverless| {
            RedisLogin::Iam(IamIdentity {
                user: "fns-1".into(),
                cache: "cache-1".into(),
                serverless,
            })
        };
        let of_iam = [
            ("SENDSLOT_REDIS_IAM_USER", "fns-1"),
            ("SENDSLOT_REDIS_IAM_CACHE", "cache-1"),
        ];
        for (url, serverless) in [
            ("rediss://master.cache-1.x.cache.amazonaws.com:6379", false),
            (
                "rediss://cache-1-x.serverless.euw1.cache.amazonaws.com:6379",
                true,
            ),
        ] {
            let set = [("SENDSLOT_REDIS_URL", url), of_iam[0], of_iam[1]];
            assert_eq!(login(Box::leak(Box::new(set))), iam(serverless));
        }
        // A user in the URL is no password.
        let arn = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:redis/us-AbCdEf";
        let set = &[
            ("SENDSLOT_REDIS_URL", "redis://us@cache"),
            (
                "SENDSLOT_REDIS_SECRET_ARN",
                "arn:aws:secretsmanager:eu-west-1:123456789012:secret:redis/us-AbCdEf",
            ),
        ];
        assert_eq!(login(set), RedisLogin::Secret { arn: arn.into() });
    }

    #[test]
    fn ways_to_log_in_that_do_not_go_together_are_refused() {
        const ARN: (&str, &str) = (
            "SENDSLOT_REDIS_SECRET_ARN",
            "arn:aws:secretsmanager:eu-west-1:123456789012:secret:redis-AbCdEf",
        );
        const USER: (&str, &str) = ("SENDSLOT_REDIS_IAM_USER", "fns");
        const CACHE: (&str, &str) = ("SENDSLOT_REDIS_IAM_CACHE", "cache");
        for (changes, part) in [
            (
                &[USER] as &'static [_],
                "SENDSLOT_REDIS_IAM_CACHE is not set, but SENDSLOT_REDIS_IAM_USER is",
            ),
            (
                &[CACHE],
                "SENDSLOT_REDIS_IAM_USER is not set, but SENDSLOT_REDIS_IAM_CACHE is",
            ),
            (
                &[USER, CACHE, ARN],
                "SENDSLOT_REDIS_SECRET_ARN is set beside",
            ),
            (&[USER, ARN], "SENDSLOT_REDIS_SECRET_ARN is set beside"),
            (&[USER, CACHE], "SENDSLOT_REDIS_URL has no TLS"),
            (
                &[
                    ("SENDSLOT_REDIS_URL", "rediss://:hunter2@cache"),
                    USER,
                    CACHE,
                ],
                "SENDSLOT_REDIS_URL holds a password",
            ),
            (
                &[("SENDSLOT_REDIS_URL", "redis://us:hunter2@cache/1"), ARN],
                "SENDSLOT_REDIS_URL holds a password",
            ),
            (
                &[("SENDSLOT_REDIS_IAM_USER", "a b")],
                "no name of at most 40",
            ),
            (
                &[("SENDSLOT_REDIS_SECRET_ARN", "redis")],
                "no ARN of a secret",
            ),
            (
                &[(
                    "SENDSLOT_REDIS_SECRET_ARN",
                    "arn:aws:ssm:eu-west-1:1:secret:a",
                )],
                "no ARN of a secret",
            ),
        ] {
            let found = problem(changes);
            assert!(found.contains(part), "{found}");
            assert!(!found.contains("hunter2"), "{found}");
        }
    }

    #[test]
    fn a_redis_password_is_never_shown() {
        let found = problem(&[("SENDSLOT_REDIS_URL", "http://:hunter2@cache")]);
        assert!(
            found.contains("SENDSLOT_REDIS_URL starts with neither"),
            "{found}"
        );
        assert!(!found.contains("hunter2"), "{found}");
        let set = &[("SENDSLOT_REDIS_URL", "redis://:hunter2@cache")];
        let settings = ReserveSettings::read(with(set)).unwrap_or_else(|e| panic!("{e}"));
        assert!(!format!("{settings:?}").contains("hunter2"));
    }
}
