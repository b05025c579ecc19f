//! Names that end up in keys, tags and logs, checked once.

use std::{fmt, str::FromStr};

/// The text can't be a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Nothing was given.
    #[error("empty: give 1 to {max} of the characters A-Z a-z 0-9 _ -")]
    Empty {
        /// The greatest length in characters.
        max: usize,
    },
    /// More was given than SES can carry.
    #[error("{length} characters long: at most {max} are allowed")]
    TooLong {
        /// What was given, in characters.
        length: usize,
        /// The greatest length in characters.
        max: usize,
    },
    /// A character that SES doesn't take in a tag value or a configuration set's name.
    #[error("holds {0:?}: only A-Z a-z 0-9 _ - are allowed")]
    Character(char),
}

fn check(text: &str, max: usize) -> Result<(), NameError> {
    if text.is_empty() {
        return Err(NameError::Empty { max });
    }
    if let Some(bad) = text
        .chars()
        .find(|c| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '-')))
    {
        return Err(NameError::Character(bad));
    }
    if text.len() > max {
        return Err(NameError::TooLong {
            length: text.len(),
            max,
        });
    }
    Ok(())
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $max:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(String);

        impl $name {
            /// The greatest length, in characters.
            pub const MAX: usize = $max;

            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = NameError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                check(text, Self::MAX)?;
                Ok(Self(text.to_owned()))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name!(
    /// On whose behalf a message goes. At most 64 characters, the limit of an SES configuration
    /// set's name, of the characters that SES takes there and in tag values.
    TenantName,
    64
);

name!(
    /// The producer's idempotency key for one message, scoped by tenant. It travels as an SES
    /// message tag, so it is of the characters a tag value may hold; at most 256 of them, the limit
    /// of a tag value.
    SendId,
    256
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_is_wrong_with_them() {
        assert_eq!(
            "acme_eu-1".parse::<TenantName>().map(|n| n.to_string()),
            Ok("acme_eu-1".into())
        );
        assert_eq!("".parse::<TenantName>(), Err(NameError::Empty { max: 64 }));
        assert_eq!("a b".parse::<SendId>(), Err(NameError::Character(' ')));
        assert_eq!("{x}".parse::<SendId>(), Err(NameError::Character('{')));
        assert_eq!(
            "x".repeat(257).parse::<SendId>(),
            Err(NameError::TooLong {
                length: 257,
                max: 256
            })
        );
    }
}
