//! Addresses as SES takes them: `user@example.com`, `Shop <user@example.com>` or
//! `"Shop, Inc." <user@example.com>`.

use email_address::{EmailAddress, Options};
use sendslot_domain::suppression::AddressDigest;
use sha2::{Digest, Sha256};

/// What is wrong with an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// A line break or another control character, which could start a header of its own.
    #[error("holds a control character: remove it")]
    Control,
    /// The display name has characters that SES doesn't carry.
    #[error(
        "the display name is not ASCII: write it as an encoded word, =?UTF-8?B?...?= (RFC 2047)"
    )]
    DisplayNotAscii,
    /// The display name could be read as another address.
    #[error("the display name holds one of ()<>[]:;@\\,\" outside quotes: put it in double quotes")]
    DisplayUnquoted,
    /// SES doesn't speak SMTPUTF8.
    #[error("the part before @ is not ASCII: SES sends to no such address")]
    LocalNotAscii,
    /// An internationalised domain in its readable form.
    #[error("the domain is not ASCII: write it in Punycode, xn--...")]
    DomainNotAscii,
    /// No address at all.
    #[error("no address: write user@example.com or Name <user@example.com>")]
    Syntax,
}

/// An address beyond recognition, with or without a display name and whatever its case. Lower case, as mailboxes that differ by case alone
/// are unknown in practice, and a suppressed one must not be reached by spelling it differently.
#[must_use]
pub fn digest(text: &str) -> AddressDigest {
    let address = match text.strip_suffix('>') {
        None => text,
        Some(inner) => inner.rsplit_once('<').map_or(inner, |(_, address)| address),
    };
    let digest = Sha256::digest(address.trim().to_lowercase());
    let mut half = [0; 16];
    half.copy_from_slice(&digest[..16]);
    AddressDigest(half)
}

/// Checks one address.
pub(crate) fn check(text: &str) -> Result<(), AddressError> {
    if text.chars().any(char::is_control) {
        return Err(AddressError::Control);
    }
    let (display, address) = match text.strip_suffix('>') {
        None => ("", text),
        Some(text) => text.rsplit_once('<').ok_or(AddressError::Syntax)?,
    };
    check_display(display.trim())?;
    let (local, domain) = address.rsplit_once('@').ok_or(AddressError::Syntax)?;
    if !local.is_ascii() {
        return Err(AddressError::LocalNotAscii);
    }
    if !domain.is_ascii() {
        return Err(AddressError::DomainNotAscii);
    }
    let options = Options {
        minimum_sub_domains: 2,
        allow_domain_literal: false,
        allow_display_text: false,
        ..Options::default()
    };
    match EmailAddress::parse_with_options(address, options) {
        Ok(_)
            if domain
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'.') =>
        {
            Ok(())
        }
        _ => Err(AddressError::Syntax),
    }
}

/// A display name is words, or one quoted string (RFC 5322, with dots allowed as everyone does).
fn check_display(name: &str) -> Result<(), AddressError> {
    if !name.is_ascii() {
        return Err(AddressError::DisplayNotAscii);
    }
    let quoted = name.len() >= 2 && name.starts_with('"') && name.ends_with('"');
    let fine = if quoted {
        let mut inside = name[1..name.len() - 1].chars();
        loop {
            match inside.next() {
                None => break true,
                Some('"') => break false,
                // The character after a backslash stands for itself.
                Some('\\') if inside.next().is_none() => break false,
                Some(_) => {}
            }
        }
    } else {
        !name.contains(['(', ')', '<', '>', '[', ']', ':', ';', '@', '\\', ',', '"'])
    };
    if fine {
        Ok(())
    } else {
        Err(AddressError::DisplayUnquoted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_what_ses_takes() {
        for text in [
            "user@example.com",
            "first.last+tag@mail.example.co.uk",
            "<user@example.com>",
            "Shop <shop@example.com>",
            "J. R. Smith <jr@example.com>",
            r#""Shop, Inc. <best>" <shop@example.com>"#,
            r#""The \"Shop\"" <shop@example.com>"#,
            "=?UTF-8?B?SsOzc2U=?= <jose@example.com>",
            "user@xn--bcher-kva.example",
            r#""a b"@example.com"#,
            "bounce+label@simulator.amazonses.com",
        ] {
            assert_eq!(check(text), Ok(()), "{text}");
        }
    }

    #[test]
    fn says_what_is_wrong_with_the_rest() {
        use AddressError::*;
        for (text, problem) in [
            ("", Syntax),
            ("user", Syntax),
            ("user@localhost", Syntax),
            ("user@[127.0.0.1]", Syntax),
            ("a@b@example.com", Syntax),
            ("a b@example.com", Syntax),
            ("a@example.com, b@example.com", Syntax),
            ("a@example.com,b@example.com", Syntax),
            ("user@exam_ple.com", Syntax),
            ("user@-example.com", Syntax),
            (".user@example.com", Syntax),
            ("Shop shop@example.com>", Syntax),
            ("user@example.com\r\nBcc: x@example.com", Control),
            ("Shop\u{0} <shop@example.com>", Control),
            ("Shop, Inc. <shop@example.com>", DisplayUnquoted),
            ("a@example.com, B <b@example.com>", DisplayUnquoted),
            (r#""Shop" Inc." <shop@example.com>"#, DisplayUnquoted),
            (r#""Shop\" <shop@example.com>"#, DisplayUnquoted),
            ("José <jose@example.com>", DisplayNotAscii),
            ("josé@example.com", LocalNotAscii),
            ("user@bücher.example", DomainNotAscii),
        ] {
            assert_eq!(check(text), Err(problem), "{text}");
        }
        let long = format!("{}@example.com", "x".repeat(65));
        assert_eq!(check(&long), Err(Syntax));
    }
}
