//! The command line.

use std::fs;

use clap::{CommandFactory, Parser, error::ErrorKind};
use sendslot::args::Args;

use crate::run::{bare, run};

#[test]
fn the_command_line_is_sound() {
    Args::command().debug_assert();
}

#[test]
fn what_is_no_command_line_exits_with_2_and_asks_nobody() {
    for args in [
        &[][..],
        &["bogus"],
        &["find", "acme"],
        &["pause", "acme"],
        &["resume", "acme", "--rate", "fast"],
        &["redrive"],
        &["redrive", "--rate", "20/s", "--from", "parked"],
        &["redrive", "--rate", "20/s", "--lane", "urgent"],
        &["redrive", "--rate", "20/s", "--older-than", "1 fortnight"],
        &["watch", "--ticks", "0"],
        &["watch", "--every", "0s"],
        &["tenant"],
    ] {
        let ran = run(bare(args));
        assert_eq!(ran.code, 2, "{args:?}: {}", ran.err);
        assert_eq!(ran.out, "", "{args:?}");
    }
}

#[test]
fn the_help_names_every_exit_code() {
    let ran = run(bare(&["--help"]));
    assert_eq!(ran.code, 0);
    for code in ["  0  ", "  1  ", "  2  ", "  3  ", "  4  ", "130  "] {
        assert!(ran.out.contains(code), "{code}: {}", ran.out);
    }
}

#[test]
fn completions_need_no_aws() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let ran = run(bare(&["completions", shell]));
        assert_eq!(ran.code, 0);
        assert!(ran.out.contains("redrive"), "{shell}");
    }
}

#[test]
fn whoever_reads_may_have_seen_enough() {
    let mut command = std::process::Command::new("sh");
    // `:` reads nothing, and is gone when the script is written.
    let script = format!(
        "{{ sleep 0.3; {} completions bash; echo $? >&2; }} | :",
        env!("CARGO_BIN_EXE_sendslot")
    );
    let ran = command.args(["-c", &script]).output().unwrap();
    assert_eq!(String::from_utf8(ran.stderr).unwrap(), "0\n");
}

/// Every line of the README that begins with the command's name.
fn in_the_readme() -> Vec<String> {
    let readme = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).unwrap();
    let lines = readme.lines().filter(|line| line.starts_with("sendslot "));
    lines
        .map(|line| line.split(" # ").next().unwrap().trim().to_owned())
        .collect()
}

#[test]
fn the_readmes_commands_are_commands() {
    let lines = in_the_readme();
    for line in &lines {
        // As a shell splits it, as far as these lines need.
        let (line, _) = line.split_once(" > ").unwrap_or((line, ""));
        let mut words: Vec<String> = Vec::new();
        for (place, part) in line.split('"').enumerate() {
            if place % 2 == 1 {
                words.push(part.to_owned());
            } else {
                words.extend(part.split_whitespace().map(str::to_owned));
            }
        }
        let read = Args::try_parse_from(&words);
        if let Err(error) = read {
            assert_eq!(error.kind(), ErrorKind::DisplayHelp, "{line}: {error}");
        }
    }
    let command = Args::command();
    for known in command.get_subcommands() {
        let name = known.get_name();
        let shown = |line: &String| line.split_whitespace().any(|word| word == name);
        assert!(
            lines.iter().any(shown),
            "the README has no example of {name}"
        );
    }
}
