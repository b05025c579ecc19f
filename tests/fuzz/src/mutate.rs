//! Changes events at random: the JSON as a tree, JSON that stands in its texts as well, and now and then the bytes.

use rand::{RngExt, rngs::StdRng, seq::IndexedRandom};
use serde_json::{Map, Number, Value, json};

/// Texts that have broken parsers.
const TEXTS: [&str; 24] = [
    "",
    " ",
    "\0",
    "null",
    "-1",
    "1e999",
    "18446744073709551616",
    "9007199254740993",
    "2026-13-45T99:99:99Z",
    "1969-12-31T23:59:59Z",
    "+275760-09-13T00:00:00.000Z",
    "a@b",
    "Ann <ann@example.com>",
    "<>",
    "\u{202e}\u{feff}",
    "\u{ffff}",
    "🙂",
    "../../etc",
    "arn:aws:sns:us-east-1:000000000000:other",
    "acme",
    "acme-set",
    "{send_id}",
    "ALARM",
    "{\"a\":",
];

/// Changes inputs; the same seed and inputs make the same changes.
pub(crate) struct Mutator {
    random: StdRng,
}

impl Mutator {
    /// One that makes its own changes.
    pub(crate) fn new(random: StdRng) -> Self {
        Self { random }
    }

    /// One of the corpus, changed a few times: mostly as JSON, and one time in eight as bytes.
    pub(crate) fn input(&mut self, corpus: &[String]) -> String {
        let text = corpus.choose(&mut self.random).cloned().unwrap_or_default();
        let Ok(mut value) = serde_json::from_str::<Value>(&text) else {
            return self.garble(&text);
        };
        for _ in 0..self.random.random_range(1..=6) {
            self.change(&mut value, corpus);
        }
        let text = value.to_string();
        if self.random.random_range(0..8) == 0 {
            return self.garble(&text);
        }
        text
    }

    /// Changes one place of a tree.
    fn change(&mut self, value: &mut Value, corpus: &[String]) {
        let places = count(value);
        let place = self.random.random_range(0..places);
        let mut left = place;
        self.change_at(value, &mut left, corpus);
    }

    /// Walks to the place; answers whether that was found.
    fn change_at(&mut self, value: &mut Value, left: &mut usize, corpus: &[String]) -> bool {
        if *left == 0 {
            self.replace(value, corpus);
            return true;
        }
        *left -= 1;
        match value {
            Value::Array(items) => items
                .iter_mut()
                .any(|item| self.change_at(item, left, corpus)),
            Value::Object(fields) => fields
                .values_mut()
                .any(|field| self.change_at(field, left, corpus)),
            Value::String(text) => {
                let Ok(mut inner) = serde_json::from_str::<Value>(text) else {
                    return false;
                };
                if !inner.is_object() && !inner.is_array() {
                    return false;
                }
                let found = self.change_at(&mut inner, left, corpus);
                if found {
                    *text = inner.to_string();
                }
                found
            }
            _ => false,
        }
    }

    fn replace(&mut self, value: &mut Value, corpus: &[String]) {
        match (value, self.random.random_range(0..10)) {
            (Value::Object(fields), 0..=2) => self.lose(fields),
            (Value::Object(fields), 3..=4) => {
                let name = self.text();
                let new = self.scalar();
                fields.insert(name, new);
            }
            (Value::Object(fields), 5) => {
                // A field under another's name.
                let names: Vec<String> = fields.keys().cloned().collect();
                if let (Some(from), Some(to)) = (
                    names.choose(&mut self.random),
                    names.choose(&mut self.random),
                ) {
                    let moved = fields[from].clone();
                    fields.insert(to.clone(), moved);
                }
            }
            (Value::Array(items), 0..=2) if !items.is_empty() => {
                items.remove(self.random.random_range(0..items.len()));
            }
            (Value::Array(items), 3..=6) if !items.is_empty() && items.len() < 64 => {
                let again = items[self.random.random_range(0..items.len())].clone();
                items.push(again);
            }
            (Value::String(text), 0..=5) => *text = self.text_like(text),
            (Value::Number(number), 0..=6) => *number = self.number(number),
            (Value::Bool(yes), 0..=6) => *yes = !*yes,
            (value, 9) => {
                // Something of another event.
                let other = corpus.choose(&mut self.random);
                let other = other.and_then(|text| serde_json::from_str(text).ok());
                *value = other.unwrap_or(Value::Null);
            }
            (value, _) => *value = self.scalar(),
        }
    }

    fn lose(&mut self, fields: &mut Map<String, Value>) {
        let names: Vec<String> = fields.keys().cloned().collect();
        if let Some(name) = names.choose(&mut self.random) {
            fields.remove(name);
        }
    }

    fn text(&mut self) -> String {
        TEXTS
            .choose(&mut self.random)
            .copied()
            .unwrap_or_default()
            .to_owned()
    }

    /// Another text, or the same with a letter more, less or changed.
    fn text_like(&mut self, text: &str) -> String {
        let mut letters: Vec<char> = text.chars().collect();
        match self.random.random_range(0..6) {
            0 => return self.text(),
            1 => return text.repeat(2),
            2 if !letters.is_empty() => {
                letters.remove(self.random.random_range(0..letters.len()));
            }
            3 if !letters.is_empty() => {
                let at = self.random.random_range(0..letters.len());
                letters[at] = char::from(self.random.random_range(0..128_u8));
            }
            4 => return text.to_uppercase(),
            _ => letters.insert(
                self.random.random_range(0..=letters.len()),
                char::from(self.random.random_range(0..128_u8)),
            ),
        }
        letters.into_iter().collect()
    }

    fn number(&mut self, number: &Number) -> Number {
        let old = number.as_i64().unwrap_or_default();
        match self.random.random_range(0..8) {
            0 => 0.into(),
            1 => old.wrapping_neg().into(),
            2 => old.saturating_add(1).into(),
            3 => u64::MAX.into(),
            4 => i64::MIN.into(),
            5 => Number::from_f64(f64::MAX).unwrap_or_else(|| 0.into()),
            6 => Number::from_f64(0.1).unwrap_or_else(|| 0.into()),
            _ => (self.random.random_range(0..1_u64 << 53)).into(),
        }
    }

    fn scalar(&mut self) -> Value {
        match self.random.random_range(0..8) {
            0 => Value::Null,
            1 => json!(true),
            2 => json!([]),
            3 => json!({}),
            4 => json!([[[[[[[[[[]]]]]]]]]]),
            5 => Value::Number(self.number(&1.into())),
            _ => Value::String(self.text()),
        }
    }

    /// Bytes changed, cut out or doubled; what is no text then is made one.
    fn garble(&mut self, text: &str) -> String {
        let mut bytes = text.as_bytes().to_vec();
        for _ in 0..self.random.random_range(1..=4) {
            if bytes.is_empty() {
                break;
            }
            let at = self.random.random_range(0..bytes.len());
            match self.random.random_range(0..4) {
                0 => bytes[at] = self.random.random(),
                1 => bytes.truncate(at),
                2 => {
                    bytes.remove(at);
                }
                _ => bytes.insert(at, self.random.random()),
            }
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// How many places a tree has to change, those of JSON in its texts included.
fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(fields) => fields.values().map(count).sum(),
        Value::String(text) => match serde_json::from_str::<Value>(text) {
            Ok(inner) if inner.is_object() || inner.is_array() => count(&inner),
            _ => 0,
        },
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::SeedableRng;

    use super::*;

    const EVENT: &str =
        r#"{"Records":[{"body":"{\"detail\":{\"mail\":{\"timestamp\":\"2026-12-01\"}}}","n":1}]}"#;

    fn inputs(seed: u64, count: usize) -> Vec<String> {
        let mut mutator = Mutator::new(StdRng::seed_from_u64(seed));
        let corpus = [EVENT.to_owned()];
        (0..count).map(|_| mutator.input(&corpus)).collect()
    }

    #[test]
    fn the_same_seed_makes_the_same_inputs_and_mostly_new_ones() {
        let some = inputs(7, 1000);
        assert_eq!(some, inputs(7, 1000));
        let different: BTreeSet<&String> = some.iter().collect();
        assert!(different.len() > 600, "{}", different.len());
    }

    #[test]
    fn json_in_texts_is_changed_within_and_stays_json() {
        let inner_changed = inputs(8, 1000).iter().any(|text| {
            let Ok(value) = serde_json::from_str::<Value>(text) else {
                return false;
            };
            let Some(body) = value["Records"][0]["body"].as_str() else {
                return false;
            };
            let Ok(inner) = serde_json::from_str::<Value>(body) else {
                return false;
            };
            inner["detail"]["mail"].is_object()
                && inner["detail"]["mail"]["timestamp"] != "2026-12-01"
        });
        assert!(inner_changed);
    }

    #[test]
    fn every_place_is_counted() {
        assert_eq!(count(&json!({"a": [1, "x"], "b": "{\"c\":2}"})), 7);
    }
}
