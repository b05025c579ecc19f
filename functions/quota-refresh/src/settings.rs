//! The environment, read once at start-up.

use std::{env, fmt};

use sendslot_runtime::{
    ByLane,
    settings::{Problem, SettingsError},
};

/// What the function needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Its name in logs and metrics (`POWERTOOLS_SERVICE_NAME`).
    pub service: String,
    /// Where its metrics go (`POWERTOOLS_METRICS_NAMESPACE`).
    pub namespace: String,
    /// The function that has Redis, by name or ARN (`SENDSLOT_CONTROL_FUNCTION`).
    pub control_function: String,
    /// Tenants have a parameter each directly under this path (`SENDSLOT_TENANTS_PATH`).
    pub tenants_path: String,
    /// How many batches are sent at once follows the budget; nothing if neither mapping is named.
    pub scaling: Option<Scaling>,
}

/// What is needed to have the concurrency of sending follow the budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scaling {
    /// The function that sends, by name (`SENDSLOT_SEND_FUNCTION`).
    pub function: String,
    /// Each lane's event source mapping, by its UUID; one that isn't named is left alone (`SENDSLOT_<LANE>_SEND_MAPPING`).
    pub mappings: ByLane<Option<String>>,
    /// The function's reserved concurrency, if it has one (`SENDSLOT_SEND_RESERVED_CONCURRENCY`).
    pub reserved: Option<u32>,
}

impl Settings {
    /// Reads the process environment.
    ///
    /// # Errors
    /// When a variable is missing or wrong; the error names all of them.
    pub fn from_env() -> Result<Self, SettingsError> {
        Self::read(|name| env::var(name).ok())
    }

    /// Reads the variables that `get` knows. One that is set to nothing counts as not set.
    ///
    /// # Errors
    /// As [`Settings::from_env`].
    pub fn read(get: impl Fn(&str) -> Option<String>) -> Result<Self, SettingsError> {
        let mut vars = Variables {
            get: &get,
            problems: Vec::new(),
        };
        let service = vars.needed("POWERTOOLS_SERVICE_NAME", "quota-refresh", any);
        let namespace = vars.optional("POWERTOOLS_METRICS_NAMESPACE", "Sendslot", any);
        let control_function = vars.needed("SENDSLOT_CONTROL_FUNCTION", "sendslot-control", any);
        let tenants_path = vars.needed("SENDSLOT_TENANTS_PATH", "/sendslot/tenants", path);
        let mappings = ByLane {
            priority: vars.optional("SENDSLOT_PRIORITY_SEND_MAPPING", UUID, uuid),
            bulk: vars.optional("SENDSLOT_BULK_SEND_MAPPING", UUID, uuid),
        };
        let managed = mappings.priority.is_some() || mappings.bulk.is_some();
        let function = managed.then(|| vars.needed("SENDSLOT_SEND_FUNCTION", "sendslot-send", any));
        let reserved = vars.optional("SENDSLOT_SEND_RESERVED_CONCURRENCY", "100", whole);
        let scaling = function.flatten().map(|function| Scaling {
            function,
            mappings,
            reserved,
        });
        let read = (|| {
            Some(Self {
                service: service?,
                namespace: namespace.unwrap_or_else(|| "Sendslot".to_owned()),
                control_function: control_function?,
                tenants_path: tenants_path?,
                scaling,
            })
        })();
        match read {
            Some(settings) if vars.problems.is_empty() => Ok(settings),
            _ => Err(SettingsError(vars.problems)),
        }
    }
}

const UUID: &str = "a1b2c3d4-5678-90ab-cdef-11111EXAMPLE";

/// Reads variables and collects what is wrong with them.
struct Variables<'a> {
    get: &'a dyn Fn(&str) -> Option<String>,
    problems: Vec<Problem>,
}

impl Variables<'_> {
    fn needed<T, E: fmt::Display>(
        &mut self,
        variable: &str,
        example: &'static str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        let before = self.problems.len();
        let read = self.optional(variable, example, parse);
        if read.is_none() && self.problems.len() == before {
            self.problem(variable, "is not set".into(), example);
        }
        read
    }

    fn optional<T, E: fmt::Display>(
        &mut self,
        variable: &str,
        example: &'static str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        let text = (self.get)(variable)?;
        let text = text.trim();
        if text.is_empty() {
            return None;
        }
        parse(text)
            .map_err(|e| self.problem(variable, format!("is {text:?}: {e}"), example))
            .ok()
    }

    fn problem(&mut self, variable: &str, what: String, example: &'static str) {
        self.problems.push(Problem {
            variable: variable.to_owned(),
            what,
            example,
        });
    }
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "one of several parsers, and others refuse"
)]
fn any(text: &str) -> Result<String, &'static str> {
    Ok(text.to_owned())
}

/// A path of parameters, without the slash at its end.
fn path(text: &str) -> Result<String, &'static str> {
    match text.trim_end_matches('/') {
        path if path.starts_with('/') => Ok(path.to_owned()),
        _ => Err("no path that begins with / and names something"),
    }
}

/// Letters, digits and hyphens, of 36: Lambda's own examples are no hexadecimal numbers.
fn uuid(text: &str) -> Result<String, &'static str> {
    let known = |c: char| c.is_ascii_alphanumeric() || c == '-';
    if text.len() == 36 && text.chars().all(known) {
        return Ok(text.to_owned());
    }
    Err("no UUID of an event source mapping")
}

fn whole(text: &str) -> Result<u32, &'static str> {
    let number = text.parse().ok().filter(|n| *n > 0);
    number.ok_or("no whole number above 0")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SET: &[(&str, &str)] = &[
        ("POWERTOOLS_SERVICE_NAME", "quota-refresh"),
        ("SENDSLOT_CONTROL_FUNCTION", "stack-control"),
        ("SENDSLOT_TENANTS_PATH", "/stack/tenants/"),
    ];
    const MAPPING: (&str, &str) = (
        "SENDSLOT_BULK_SEND_MAPPING",
        "a1b2c3d4-5678-90ab-cdef-11111EXAMPLE",
    );

    fn read(changes: &[(&str, &str)]) -> Result<Settings, String> {
        let settings = Settings::read(|name| {
            let found = changes.iter().chain(SET).find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        });
        settings.map_err(|e| e.to_string())
    }

    #[test]
    fn what_is_not_set_has_the_deployed_defaults() {
        let settings = read(&[("SENDSLOT_PRIORITY_SEND_MAPPING", " ")]).unwrap();
        assert_eq!(settings.namespace, "Sendslot");
        assert_eq!(settings.tenants_path, "/stack/tenants");
        assert_eq!(settings.scaling, None);
    }

    #[test]
    fn one_mapping_is_enough_to_be_managed() {
        let settings = read(&[
            MAPPING,
            ("SENDSLOT_SEND_FUNCTION", "stack-send"),
            ("SENDSLOT_SEND_RESERVED_CONCURRENCY", "50"),
        ]);
        let expected = Scaling {
            function: "stack-send".into(),
            mappings: ByLane {
                priority: None,
                bulk: Some(MAPPING.1.into()),
            },
            reserved: Some(50),
        };
        assert_eq!(settings.unwrap().scaling, Some(expected));
    }

    #[test]
    fn every_problem_is_named() {
        let Err(SettingsError(problems)) = Settings::read(|_| None) else {
            panic!("an empty environment was taken")
        };
        let named: Vec<_> = problems.iter().map(|p| p.variable.as_str()).collect();
        assert_eq!(named, SET.iter().map(|(name, _)| *name).collect::<Vec<_>>());
        for (changes, expected) in [
            (
                &[MAPPING] as &[_],
                "bad settings: SENDSLOT_SEND_FUNCTION is not set, set it to for example \"sendslot-send\"",
            ),
            (
                &[("SENDSLOT_TENANTS_PATH", "tenants")],
                "bad settings: SENDSLOT_TENANTS_PATH is \"tenants\": no path that begins with / and names something, set it to \
                 for example \"/sendslot/tenants\"",
            ),
            (
                &[("SENDSLOT_TENANTS_PATH", "/")],
                "bad settings: SENDSLOT_TENANTS_PATH is \"/\": no path that begins with / and names something, set it to for \
                 example \"/sendslot/tenants\"",
            ),
            (
                &[("SENDSLOT_BULK_SEND_MAPPING", "bulk")],
                "bad settings: SENDSLOT_BULK_SEND_MAPPING is \"bulk\": no UUID of an event source mapping, set it to for \
                 example \"a1b2c3d4-5678-90ab-cdef-11111EXAMPLE\"",
            ),
            (
                &[("SENDSLOT_SEND_RESERVED_CONCURRENCY", "0")],
                "bad settings: SENDSLOT_SEND_RESERVED_CONCURRENCY is \"0\": no whole number above 0, set it to for example \
                 \"100\"",
            ),
        ] {
            assert_eq!(read(changes), Err(expected.to_owned()));
        }
    }
}
