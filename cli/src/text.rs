//! Numbers, times and tables, for people.

use std::time::Duration;

use time::OffsetDateTime;

/// A whole number with commas: `12,345`.
#[must_use]
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A count, or a dash for none, so that what isn't zero is seen.
#[must_use]
pub fn some(number: u64) -> String {
    if number == 0 {
        "-".to_owned()
    } else {
        count(number)
    }
}

/// A count with its noun: `1 mail`, `2 mails`.
#[must_use]
pub fn several(number: u64, noun: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{} {noun}{s}", count(number))
}

/// Per second: `20.0/s`; slow ones keep their digits: `0.005/s`.
#[must_use]
pub fn per_second(rate: f64) -> String {
    if rate == 0.0 || rate >= 1.0 {
        format!("{rate:.1}/s")
    } else {
        format!("{rate:.3}/s")
    }
}

/// How long, in its two largest units: `45 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`.
#[must_use]
pub fn span(time: Duration) -> String {
    let s = time.as_secs();
    let (large, small) = match s {
        0..60 => return format!("{s} s"),
        60..3_600 => ((s / 60, "min"), (s % 60, "s")),
        3_600..86_400 => ((s / 3_600, "h"), (s % 3_600 / 60, "min")),
        _ => ((s / 86_400, "d"), (s % 86_400 / 3_600, "h")),
    };
    if small.0 == 0 {
        format!("{} {}", large.0, large.1)
    } else {
        format!("{} {} {} {}", large.0, large.1, small.0, small.1)
    }
}

/// The same, of milliseconds.
#[must_use]
pub fn span_ms(ms: u64) -> String {
    span(Duration::from_millis(ms))
}

/// A moment: `2026-12-01 13:40:05 UTC`.
#[must_use]
pub fn moment(ms: u64) -> String {
    let at = i64::try_from(ms / 1_000).ok();
    let Some(at) = at.and_then(|s| OffsetDateTime::from_unix_timestamp(s).ok()) else {
        return format!("{ms} ms");
    };
    let (date, time) = (at.date(), at.time());
    format!(
        "{}-{:02}-{:02} {:02}:{:02}:{:02} UTC",
        date.year(),
        u8::from(date.month()),
        date.day(),
        time.hour(),
        time.minute(),
        time.second()
    )
}

/// Bytes: `3.4 MB`.
#[must_use]
pub fn bytes(bytes: u64) -> String {
    let (whole, unit) = match bytes {
        0..1_000 => return format!("{bytes} B"),
        1_000..1_000_000 => (1_000, "kB"),
        1_000_000..1_000_000_000 => (1_000_000, "MB"),
        _ => (1_000_000_000, "GB"),
    };
    let tenths = bytes / (whole / 10);
    format!("{}.{} {unit}", tenths / 10, tenths % 10)
}

/// What came from others, as one harmless line: control characters are blanks.
#[must_use]
pub fn line(text: &str) -> String {
    text.replace(char::is_control, " ")
}

/// A table, columns two blanks apart: the first `left` columns to the left, numbers after them to the right.
#[must_use]
pub fn table(left: usize, head: &[&str], rows: &[Vec<String>]) -> String {
    let head: Vec<String> = head.iter().map(|&cell| cell.to_owned()).collect();
    let all: Vec<&Vec<String>> = std::iter::once(&head).chain(rows).collect();
    let width = |column: usize| {
        let cells = all.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let written = all.iter().map(|row| {
        let cells = row.iter().zip(&widths).enumerate();
        let cells = cells.map(|(column, (cell, &width))| {
            if column < left {
                format!("{cell:<width$}")
            } else {
                format!("{cell:>width$}")
            }
        });
        let cells: Vec<String> = cells.collect();
        cells.join("  ").trim_end().to_owned()
    });
    let written: Vec<String> = written.collect();
    written.join("\n")
}

/// Each line further in.
#[must_use]
pub fn indent(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(|line| format!("  {line}")).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_000), "1,000");
        assert_eq!(count(12_345_678), "12,345,678");
        assert_eq!(several(1, "mail"), "1 mail");
        assert_eq!(several(2_000, "mail"), "2,000 mails");
        assert_eq!(per_second(19.96), "20.0/s");
        assert_eq!(per_second(0.005), "0.005/s");
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(3_460_000), "3.4 MB");
    }

    #[test]
    fn times_read_well() {
        let span = |s| span(Duration::from_secs(s));
        assert_eq!(span(0), "0 s");
        assert_eq!(span(59), "59 s");
        assert_eq!(span(60), "1 min");
        assert_eq!(span(200), "3 min 20 s");
        assert_eq!(span(7_500), "2 h 5 min");
        assert_eq!(span(273_600), "3 d 4 h");
        assert_eq!(moment(1_796_132_405_999), "2026-12-01 13:40:05 UTC");
        assert_eq!(moment(0), "1970-01-01 00:00:00 UTC");
    }

    #[test]
    fn tables_are_aligned() {
        let rows = [
            vec!["priority".to_owned(), "7".to_owned()],
            vec!["bulk".to_owned(), "1,234".to_owned()],
        ];
        assert_eq!(
            table(1, &["lane", "booked"], &rows),
            "lane      booked\npriority       7\nbulk       1,234"
        );
    }
}
