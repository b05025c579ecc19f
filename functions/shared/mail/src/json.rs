//! JSON read strictly: a key that is there twice is an error, where serde would keep one of the two.

use std::{cell::RefCell, fmt};

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::Refusal;

/// Reads one JSON value.
pub(crate) fn parse(text: &str) -> Result<Value, Refusal> {
    let duplicate = RefCell::new(None);
    let strict = Strict {
        path: Path::Root,
        duplicate: &duplicate,
    };
    let mut from = serde_json::Deserializer::from_str(text);
    let value = strict
        .deserialize(&mut from)
        .and_then(|value| from.end().map(|()| value));
    value.map_err(|e| match duplicate.take() {
        Some(at) => Refusal::DuplicateKey { at: shown(&at) },
        None => Refusal::MalformedJson {
            line: e.line(),
            column: e.column(),
        },
    })
}

/// A JSON pointer as it may be shown: what a producer chose as a key may be personal, so parts that
/// don't look like a field's name become `*`, and nothing inside tags or template data is named.
pub(crate) fn shown(pointer: &str) -> String {
    let mut at = String::new();
    for part in pointer.split('/').skip(1) {
        if at == "/tags" || at == "/content/template/data" {
            break;
        }
        let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
        let plain = part.len() <= 64 && part.bytes().all(plain);
        at.push('/');
        at.push_str(if plain { part } else { "*" });
    }
    at
}

/// Where a value stands.
enum Path<'a> {
    Root,
    Key(&'a Self, &'a str),
    Index(&'a Self, usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Key(parent, key) => {
                write!(f, "{parent}/{}", key.replace('~', "~0").replace('/', "~1"))
            }
            Self::Index(parent, index) => write!(f, "{parent}/{index}"),
        }
    }
}

struct Strict<'a> {
    path: Path<'a>,
    duplicate: &'a RefCell<Option<String>>,
}

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        let number = Number::from_f64(value).ok_or_else(|| E::custom("no finite number"))?;
        Ok(Value::Number(number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = from.next_element_seed(Strict {
            path: Path::Index(&self.path, items.len()),
            duplicate: self.duplicate,
        })? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = from.next_key::<String>()? {
            let path = Path::Key(&self.path, &key);
            if map.contains_key(&key) {
                *self.duplicate.borrow_mut() = Some(path.to_string());
                return Err(A::Error::custom("duplicate key"));
            }
            let value = from.next_value_seed(Strict {
                path,
                duplicate: self.duplicate,
            })?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_serde_reads() {
        for text in [
            "null",
            r#"{"a":[1,-2,3.5,"x\n",true,null,{}],"b":{"c":[]}}"#,
            "18446744073709551615",
        ] {
            assert_eq!(
                parse(text),
                Ok(serde_json::from_str(text).unwrap_or_default())
            );
        }
    }

    #[test]
    fn a_key_that_is_there_twice_is_found_at_any_depth() {
        let at = |text| match parse(text) {
            Err(Refusal::DuplicateKey { at }) => at,
            other => format!("{other:?}"),
        };
        assert_eq!(at(r#"{"a":1,"a":2}"#), "/a");
        assert_eq!(
            at(r#"{"content":{"headers":[{},{"name":1,"name":2}]}}"#),
            "/content/headers/1/name"
        );
        // What a producer calls its own things is not repeated.
        assert_eq!(at(r#"{"tags":{"x":1,"x":1}}"#), "/tags");
        assert_eq!(
            at(r#"{"content":{"template":{"data":{"x":{"y":1,"y":1}}}}}"#),
            "/content/template/data"
        );
        assert_eq!(at(r#"{"bob@x.org":1,"bob@x.org":2}"#), "/*");
        assert_eq!(at(r#"{"a/b":{"c":1,"c":2}}"#), "/*/c");
    }

    #[test]
    fn what_is_no_json_is_located() {
        let at = |text| match parse(text) {
            Err(Refusal::MalformedJson { line, column }) => (line, column),
            _ => (0, 0),
        };
        assert_eq!(at("{\n\"a\" 1}"), (2, 5));
        assert_eq!(at("{} {}"), (1, 4));
        assert_ne!(at(""), (0, 0));
        assert_ne!(at(&"[".repeat(1000)), (0, 0));
    }
}
