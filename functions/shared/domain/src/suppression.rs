//! Whom nobody may be sent to.

use std::fmt;

/// An address, beyond recognition: the first 16 bytes of the SHA-256 of it in lower case. Two addresses that differ have the same one
/// time in 2^128.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AddressDigest(pub [u8; 16]);

/// Why nobody may send to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Mail to it bounced for good.
    Bounce,
    /// Its owner complained.
    Complaint,
}

impl fmt::Display for AddressDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for AddressDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AddressDigest({self})")
    }
}

/// The text is no digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a digest of an address: give 32 hexadecimal digits")]
pub struct NoDigest;

impl std::str::FromStr for AddressDigest {
    type Err = NoDigest;

    fn from_str(text: &str) -> Result<Self, NoDigest> {
        if text.len() != 32 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(NoDigest);
        }
        u128::from_str_radix(text, 16)
            .map(|number| Self(number.to_be_bytes()))
            .map_err(|_| NoDigest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_read_as_it_is_written() {
        let digest = AddressDigest([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 254, 255]);
        assert_eq!(digest.to_string(), "000102030405060708090a0b0c0dfeff");
        assert_eq!(digest.to_string().parse(), Ok(digest));
        for text in [
            "",
            "00",
            "+00102030405060708090a0b0c0dfeff",
            &"0".repeat(33),
        ] {
            assert_eq!(text.parse::<AddressDigest>(), Err(NoDigest), "{text}");
        }
    }
}
