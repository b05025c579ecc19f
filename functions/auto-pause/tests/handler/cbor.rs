//! What CloudWatch speaks: CBOR, as far as it is used there. Written from RFC 8949, so that it isn't the SDK that judges itself.

use serde_json::{Map, Value, json};

/// As JSON says it; a number without a fraction is an integer.
pub(crate) fn written(value: &Value) -> Vec<u8> {
    let head = |kind: u8, length: u64| {
        let kind = kind << 5;
        match u8::try_from(length) {
            Ok(length) if length < 24 => vec![kind | length],
            Ok(length) => vec![kind | 0x18, length],
            Err(_) => [&[kind | 0x1b][..], &length.to_be_bytes()].concat(),
        }
    };
    let length = |items: usize| u64::try_from(items).unwrap();
    match value {
        Value::Null => vec![0xf6],
        Value::Bool(known) => vec![0xf4 | u8::from(*known)],
        Value::Number(number) => match number.as_u64() {
            Some(number) => head(0, number),
            None => [&[0xfb][..], &number.as_f64().unwrap().to_be_bytes()].concat(),
        },
        Value::String(text) => [head(3, length(text.len())), text.clone().into_bytes()].concat(),
        Value::Array(items) => {
            let all = items.iter().flat_map(written);
            head(4, length(items.len()))
                .into_iter()
                .chain(all)
                .collect()
        }
        Value::Object(fields) => {
            let all = fields.iter().flat_map(|(name, value)| {
                [written(&Value::String(name.clone())), written(value)].concat()
            });
            head(5, length(fields.len()))
                .into_iter()
                .chain(all)
                .collect()
        }
    }
}

/// The JSON of it; a moment is its seconds.
pub(crate) fn read(bytes: &[u8]) -> Value {
    let mut rest = bytes;
    let value = item(&mut rest).unwrap();
    assert!(rest.is_empty(), "{rest:?}");
    value
}

/// The next item; nothing is the end of what had no length.
fn item(rest: &mut &[u8]) -> Option<Value> {
    let first = take(rest, 1)[0];
    let (kind, more) = (first >> 5, first & 31);
    if first == 0xff {
        return None;
    }
    let number = match more {
        0..24 => u64::from(more),
        24..28 => {
            let bytes = take(rest, 1 << (more - 24));
            bytes
                .iter()
                .fold(0, |sum, byte| sum << 8 | u64::from(*byte))
        }
        _ => u64::MAX,
    };
    let mut next = || item(rest);
    Some(match kind {
        0 => json!(number),
        3 => {
            let text = take(rest, usize::try_from(number).unwrap());
            Value::String(String::from_utf8(text.to_vec()).unwrap())
        }
        4 => Value::Array((0..number).map_while(|_| next()).collect()),
        5 => {
            let fields = (0..number).map_while(|_| {
                let name = next()?.as_str()?.to_owned();
                Some((name, next()?))
            });
            Value::Object(fields.collect::<Map<_, _>>())
        }
        6 => next().unwrap(),
        7 if more == 27 => json!(f64::from_bits(number)),
        7 if more == 20 || more == 21 => json!(more == 21),
        _ => panic!("kind {kind}, {more}"),
    })
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> &'a [u8] {
    let (taken, left) = rest.split_at(length);
    *rest = left;
    taken
}

#[test]
fn what_is_written_is_read() {
    let value = json!({ "a": [1, 300, true, 0.05], "long": "x".repeat(99), "none": {} });
    assert_eq!(read(&written(&value)), value);
    // {_ "a": 1(1700000000), "b": [_ 2]}, from the RFC's rules by hand.
    let bytes = [
        0xbf, 0x61, b'a', 0xc1, 0x1a, 0x65, 0x53, 0xf1, 0x00, 0x61, b'b', 0x9f, 0x02, 0xff, 0xff,
    ];
    assert_eq!(read(&bytes), json!({ "a": 1_700_000_000, "b": [2] }));
}
