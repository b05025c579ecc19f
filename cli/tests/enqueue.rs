//! Handing in files: what reaches the queue, what is refused, and what a run that ended early leaves to the next.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, VecDeque},
    fmt::Write as _,
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use clap::Parser;
use sendslot::{
    enqueue::{CallFailed, EnqueueArgs, Entry, Failed, Queue, Report, run},
    error::Error,
    exit::Exit,
    output::Output,
};
use sendslot_domain::Moment;
use serde_json::Value;
use tokio::{sync::Notify, task::yield_now, time::sleep};

const NOW: Moment = Moment(1_800_000_000_000);

/// A folder of its own, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::SeqCst);
        let path =
            std::env::temp_dir().join(format!("sendslot-enqueue-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        path
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.0.join(name)).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

#[derive(Parser)]
struct Only {
    #[command(flatten)]
    args: EnqueueArgs,
}

fn args(file: &Path, options: &[&str]) -> EnqueueArgs {
    let line = ["x", file.to_str().unwrap()];
    Only::try_parse_from(line.iter().chain(options))
        .unwrap()
        .args
}

/// What a call to the queue is answered.
enum Answer {
    /// These entries fail; the others are taken.
    Failed(Vec<Failed>),
    /// The call fails, and nothing is taken.
    Call { passes: bool },
    /// The call fails, but all was taken.
    TakenButFailed,
}

/// The queue: takes everything, after what was asked for.
#[derive(Default)]
struct Fake {
    taken: RefCell<Vec<Entry>>,
    answers: RefCell<VecDeque<Answer>>,
    calls: Cell<usize>,
    at_once: Cell<usize>,
    most_at_once: Cell<usize>,
    /// Nothing is answered before so many calls were there at once.
    together: Cell<usize>,
    /// From this call on nothing is answered, though what is asked is done.
    silent_from: Cell<Option<usize>>,
    silent: Notify,
}

impl Fake {
    fn answering(answers: impl IntoIterator<Item = Answer>) -> Self {
        let fake = Self::default();
        fake.answers.borrow_mut().extend(answers);
        fake
    }

    /// How often each send id was taken.
    fn ids(&self) -> BTreeMap<String, usize> {
        let mut ids = BTreeMap::new();
        for entry in self.taken.borrow().iter() {
            let body: Value = serde_json::from_str(&entry.body).unwrap();
            *ids.entry(body["send_id"].as_str().unwrap().to_owned())
                .or_default() += 1;
        }
        ids
    }
}

impl Queue for Fake {
    async fn send(&self, entries: &[&Entry]) -> Result<Vec<Failed>, CallFailed> {
        assert!((1..=10).contains(&entries.len()));
        assert!(entries.iter().map(|entry| entry.body.len()).sum::<usize>() <= 1_048_576);
        let call = self.calls.get();
        self.calls.set(call + 1);
        self.at_once.set(self.at_once.get() + 1);
        self.most_at_once
            .set(self.most_at_once.get().max(self.at_once.get()));
        while self.most_at_once.get() < self.together.get() {
            sleep(Duration::from_millis(1)).await;
        }
        // Answers come in another order than calls.
        for _ in 0..call * 7 % 5 {
            yield_now().await;
        }
        let answer = self.answers.borrow_mut().pop_front();
        let failed = |passes| CallFailed {
            passes,
            error: Error::Other("the queue is away".to_owned()),
        };
        let answer = match answer {
            Some(Answer::Call { passes }) => Err(failed(passes)),
            Some(Answer::Failed(failures)) => Ok(failures),
            Some(Answer::TakenButFailed) => {
                self.taken
                    .borrow_mut()
                    .extend(entries.iter().map(|&entry| entry.clone()));
                Err(failed(true))
            }
            None => Ok(Vec::new()),
        };
        if let Ok(failures) = &answer {
            let took = entries
                .iter()
                .enumerate()
                .filter(|(index, _)| failures.iter().all(|failed| failed.index != *index));
            self.taken
                .borrow_mut()
                .extend(took.map(|(_, &entry)| entry.clone()));
        }
        if self.silent_from.get().is_some_and(|from| call >= from) {
            self.silent.notify_one();
            std::future::pending::<()>().await;
        }
        self.at_once.set(self.at_once.get() - 1);
        answer
    }
}

#[derive(Clone, Default)]
struct Text(Arc<Mutex<Vec<u8>>>);

impl io::Write for Text {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Text {
    fn get(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

/// Runs it to its end; what it says as JSON and to people.
async fn told(fake: &Fake, args: &EnqueueArgs) -> (Result<(Exit, Report), Error>, String, String) {
    let (results, remarks) = (Text::default(), Text::default());
    let mut out = Output::to(true, results.clone(), remarks.clone());
    let ended = run(fake, "queue", args, || NOW, &mut out).await;
    (ended, results.get(), remarks.get())
}

async fn done(fake: &Fake, args: &EnqueueArgs) -> (Exit, Report) {
    let (ended, _, remarks) = told(fake, args).await;
    ended.unwrap_or_else(|error| panic!("{error}: {remarks}"))
}

async fn error(fake: &Fake, args: &EnqueueArgs) -> String {
    match told(fake, args).await.0 {
        Ok((exit, report)) => panic!("{exit:?} {report:?}"),
        Err(error) => error.to_string(),
    }
}

/// Runs it until the queue falls silent, and lets it go as a kill would.
async fn killed(fake: &Fake, args: &EnqueueArgs) {
    let mut out = Output::to(true, io::sink(), io::sink());
    tokio::select! {
        biased;
        () = fake.silent.notified() => {}
        ended = run(fake, "queue", args, || NOW, &mut out) => panic!("ended before: {:?}", ended.map(|_| ())),
    }
}

fn request(id: &str) -> String {
    format!(
        r#"{{"send_id":"{id}","tenant":"acme","from":"shop@example.com","to":["a@example.org"],"content":{{"simple":{{"subject":"s","text":"t"}}}}}}"#
    )
}

fn requests(count: usize) -> String {
    (0..count).fold(String::new(), |mut text, n| {
        writeln!(text, "{}", request(&format!("m-{n:05}"))).unwrap();
        text
    })
}

#[tokio::test]
async fn lines_reach_the_queue_as_they_are() {
    let folder = Folder::new();
    let file = folder.write("mail.jsonl", requests(95));
    let fake = Fake::default();
    fake.together.set(3);
    let (exit, report) = done(&fake, &args(&file, &["--in-flight", "3"])).await;
    assert_eq!(
        (
            exit,
            report.rows,
            report.accepted,
            report.refused,
            report.resumed
        ),
        (Exit::Done, 95, 95, 0, 0)
    );
    let mut bodies: Vec<String> = fake
        .taken
        .borrow()
        .iter()
        .map(|entry| entry.body.clone())
        .collect();
    bodies.sort();
    assert_eq!(bodies, requests(95).lines().collect::<Vec<_>>());
    assert!(
        fake.taken
            .borrow()
            .iter()
            .all(|entry| entry.group == "acme")
    );
    assert_eq!(fake.calls.get(), 10);
    assert_eq!(fake.most_at_once.get(), 3);
    assert!(!folder.0.join("mail.jsonl.refused").exists());
}

#[tokio::test]
async fn one_at_a_time_keeps_the_order() {
    let folder = Folder::new();
    let file = folder.write("mail.jsonl", requests(40));
    let fake = Fake::default();
    done(&fake, &args(&file, &["--in-flight", "1"])).await;
    let lines: Vec<u64> = fake.taken.borrow().iter().map(|entry| entry.line).collect();
    assert_eq!(lines, (1..=40).collect::<Vec<_>>());
}

#[tokio::test]
async fn columns_are_the_templates_data() {
    let folder = Folder::new();
    let file = folder.write("list.csv", "to,name,city\r\na@example.org,\"Ann \"\"A\"\"\",\"Bonn,\nGermany\"\r\nb@example.org,Bo,\r\n");
    let fake = Fake::default();
    let options = [
        "--tenant",
        "acme",
        "--from",
        "shop@example.com",
        "--template",
        "hello",
        "--campaign",
        "xmas",
        "--lane",
        "priority",
    ];
    done(&fake, &args(&file, &options)).await;
    let bodies: Vec<Value> = fake
        .taken
        .borrow()
        .iter()
        .map(|entry| serde_json::from_str(&entry.body).unwrap())
        .collect();
    let content = |n: usize| &bodies[n]["content"]["template"];
    assert_eq!(
        content(0)["data"],
        serde_json::json!({ "name": "Ann \"A\"", "city": "Bonn,\nGermany" })
    );
    assert_eq!(
        content(1)["data"],
        serde_json::json!({ "name": "Bo", "city": "" })
    );
    assert_eq!(content(0)["name"], "hello");
    // The first row begins on line 2 and ends on line 3.
    assert_eq!(
        (&bodies[0]["send_id"], &bodies[1]["send_id"]),
        (&"xmas-2".into(), &"xmas-4".into())
    );
}

#[tokio::test]
async fn refused_rows_are_listed_by_line_and_stop_no_other() {
    let folder = Folder::new();
    let mut text = b"send_id,tenant,from,to,subject,text\n".to_vec();
    for row in [
        &b"a1,acme,f@example.com,t@example.org,s,t"[..],
        b"a2,acme,f@example.com,secret@nowhere@x,s,t",
        b"a3,acme,f@example.com,t@example.org,s",
        b"a4,acme,f@example.com,t@example.org,s,t\xff",
        b"",
        b"a5,acme,f@example.com,t@example.org,s,\"open",
        b"a6,acme,f@example.com,t@example.org,s,\"two\nlines\"",
        b"bad id,acme,f@example.com,t@example.org,s,t",
        b"a8,acme,f@example.com,,s,t",
    ] {
        text.extend_from_slice(row);
        text.push(b'\n');
    }
    let file = folder.write("list.csv", text);
    let fake = Fake::default();
    let (ended, results, remarks) = told(&fake, &args(&file, &[])).await;
    let (exit, report) = ended.unwrap();
    assert_eq!(
        (exit, report.accepted, report.refused),
        (Exit::Partly, 2, 6)
    );
    assert_eq!(fake.ids().into_keys().collect::<Vec<_>>(), ["a1", "a6"]);
    let mut listed = csv::Reader::from_path(folder.0.join("list.csv.refused")).unwrap();
    let listed: Vec<(u64, String, String)> = listed.deserialize().map(Result::unwrap).collect();
    let codes: Vec<(u64, &str)> = listed
        .iter()
        .map(|(line, code, _)| (*line, code.as_str()))
        .collect();
    let expected = [
        (3, "bad_address"),
        (4, "malformed_csv"),
        (5, "not_utf8"),
        (7, "malformed_csv"),
        (10, "bad_send_id"),
        (11, "no_recipients"),
    ];
    assert_eq!(codes, expected);
    let all =
        folder.read("list.csv.refused") + &folder.read("list.csv.checkpoint") + &results + &remarks;
    assert!(
        !all.contains("secret") && !all.contains("example.org"),
        "{all}"
    );
    // The last line of the results is the report.
    let last: Value = serde_json::from_str(results.lines().last().unwrap()).unwrap();
    assert_eq!(
        (&last["rows"], &last["refused"], &last["done"]),
        (&8.into(), &6.into(), &true.into())
    );
    assert!(remarks.contains("2 rows accepted, 6 refused"), "{remarks}");
}

#[tokio::test]
async fn what_failed_on_the_way_is_tried_again() {
    let folder = Folder::new();
    let file = folder.write("mail.jsonl", requests(10));
    let failed = |index, sender_fault, code: &str| Failed {
        index,
        sender_fault,
        code: code.to_owned(),
    };
    let fake = Fake::answering([
        Answer::Call { passes: true },
        Answer::Failed(vec![
            failed(8, false, "InternalError"),
            failed(2, true, "InvalidMessageContents"),
            failed(5, true, "ThrottlingException"),
        ]),
        // Of the two that are left.
        Answer::Failed(vec![failed(1, false, "InternalError")]),
    ]);
    let (exit, report) = done(&fake, &args(&file, &[])).await;
    assert_eq!(
        (exit, report.accepted, report.refused),
        (Exit::Partly, 9, 1)
    );
    let ids = fake.ids();
    assert_eq!(ids.len(), 9);
    assert!(ids.values().all(|times| *times == 1) && !ids.contains_key("m-00002"));
    assert_eq!(fake.calls.get(), 4);
    let refused = folder.read("mail.jsonl.refused");
    assert!(refused.contains("3,InvalidMessageContents,"), "{refused}");
}

#[tokio::test]
async fn when_the_queue_stays_away_it_stops_and_can_go_on() {
    let folder = Folder::new();
    let file = folder.write("mail.jsonl", requests(100));
    for (passes, calls) in [(true, 3), (false, 1)] {
        let away = (0..calls).map(|_| Answer::Call { passes });
        let fake = Fake::answering(away);
        let options = ["--in-flight", "1", "--tries", "3"];
        let (ended, _, remarks) = told(&fake, &args(&file, &options)).await;
        assert_eq!(ended.unwrap_err().to_string(), "the queue is away");
        assert_eq!(fake.calls.get(), calls);
        assert!(
            remarks.contains("run the same command again to go on"),
            "{remarks}"
        );
    }
    let fake = Fake::default();
    assert_eq!(done(&fake, &args(&file, &[])).await.1.accepted, 100);
    assert_eq!(fake.ids().len(), 100);
}

#[tokio::test]
async fn a_lost_answer_hands_in_again_under_the_same_send_ids() {
    let folder = Folder::new();
    let file = folder.write("mail.jsonl", requests(10));
    let fake = Fake::answering([Answer::TakenButFailed]);
    assert_eq!(done(&fake, &args(&file, &[])).await.1.accepted, 10);
    assert_eq!(
        fake.ids(),
        (0..10).map(|n| (format!("m-{n:05}"), 2)).collect()
    );
}

#[tokio::test]
async fn kills_lose_nothing_and_repeat_only_what_was_in_flight() {
    for seed in 0..20 {
        let folder = Folder::new();
        // Every ninth row is refused.
        let text = (0..700).fold(String::new(), |mut text, n| {
            let line = if n % 9 == 4 {
                "{}".to_owned()
            } else {
                request(&format!("m-{n:05}"))
            };
            writeln!(text, "{line}").unwrap();
            text
        });
        let file = folder.write("mail.jsonl", text);
        let args = args(&file, &["--in-flight", "4"]);
        let fake = Fake::default();
        for kill in 1..=2 {
            fake.silent_from
                .set(Some(fake.calls.get() + (seed * 3 + kill * 5) % 25));
            killed(&fake, &args).await;
            fake.at_once.set(0);
        }
        fake.silent_from.set(None);
        let (exit, report) = done(&fake, &args).await;
        assert_eq!(
            (exit, report.rows, report.refused),
            (Exit::Partly, 700, 78),
            "seed {seed}"
        );
        assert!(report.resumed > 0 || seed % 25 < 8, "seed {seed}");
        let ids = fake.ids();
        assert_eq!(ids.len(), 622, "seed {seed}");
        let again = ids.values().sum::<usize>() - 622;
        assert!((1..=2 * 4 * 10).contains(&again), "seed {seed}: {again}");
        let refused = folder.read("mail.jsonl.refused");
        let lines: Vec<u64> = refused
            .lines()
            .skip(1)
            .map(|line| line.split(',').next().unwrap().parse().unwrap())
            .collect();
        let expected: Vec<u64> = (0..700).filter(|n| n % 9 == 4).map(|n| n + 1).collect();
        assert_eq!(lines, expected, "seed {seed}");
    }
}

#[tokio::test]
async fn a_torn_checkpoint_is_gone_on_from() {
    let folder = Folder::new();
    let mut text = requests(100);
    text.insert_str(0, "{}\n");
    let file = folder.write("mail.jsonl", text);
    let args = args(&file, &["--in-flight", "1"]);
    done(&Fake::default(), &args).await;
    let whole = folder.read("mail.jsonl.checkpoint");
    let refused = folder.read("mail.jsonl.refused");
    for cut in 0..whole.len() {
        fs::write(folder.0.join("mail.jsonl.checkpoint"), &whole[..cut]).unwrap();
        let fake = Fake::default();
        let (_, report) = done(&fake, &args).await;
        assert_eq!(
            (report.rows, report.accepted, report.refused),
            (101, 100, 1),
            "cut at {cut}"
        );
        let noted = whole[..cut].matches("\nb ").count();
        let resumed = usize::try_from(report.resumed).unwrap();
        let torn = usize::from(!whole[..cut].ends_with('\n') && noted > 0);
        let expected = noted.saturating_sub(torn.min(noted));
        // The last line may be whole but for its end, or be another than a batch's.
        assert!(
            [expected, noted]
                .map(|batches| if batches > 0 {
                    (batches * 10 + 1).min(101)
                } else {
                    0
                })
                .contains(&resumed),
            "cut at {cut}: {resumed}"
        );
        assert_eq!(
            fake.ids().len() + resumed.saturating_sub(1),
            100,
            "cut at {cut}"
        );
        assert_eq!(folder.read("mail.jsonl.checkpoint"), whole, "cut at {cut}");
        assert_eq!(folder.read("mail.jsonl.refused"), refused, "cut at {cut}");
    }
}

#[tokio::test]
async fn what_is_done_is_not_done_again() {
    let folder = Folder::new();
    let file = folder.write("mail.jsonl", requests(25));
    done(&Fake::default(), &args(&file, &[])).await;
    let fake = Fake::default();
    let (ended, results, remarks) = told(&fake, &args(&file, &[])).await;
    let (exit, report) = ended.unwrap();
    assert_eq!(
        (exit, report.rows, report.resumed, fake.calls.get()),
        (Exit::Done, 25, 25, 0)
    );
    assert!(remarks.contains("all 25 rows of"), "{remarks}");
    assert_eq!(results.lines().count(), 1);
}

#[tokio::test]
async fn a_checkpoint_fits_its_file_and_options_only() {
    let folder = Folder::new();
    let file = folder.write("mail.jsonl", requests(200));
    let fake = Fake::default();
    fake.silent_from.set(Some(3));
    killed(&fake, &args(&file, &["--tenant", "acme"])).await;
    let fresh = Fake::default();
    for (options, named) in [
        (vec!["--tenant", "beta"], "another --tenant"),
        (vec![], "another --tenant"),
        (
            vec!["--tenant", "acme", "--lane", "priority"],
            "another --lane",
        ),
        (
            vec!["--tenant", "acme", "--from", "boss@example.com"],
            "another --from",
        ),
    ] {
        let why = error(&fresh, &args(&file, &options)).await;
        assert!(why.contains(named) && !why.contains("boss@"), "{why}");
    }
    // As long as before, and as it was at both ends.
    let text = requests(200).replace("m-00100", "x-00100");
    let same = ["--tenant", "acme"];
    for changed in [text, requests(201), requests(199)] {
        fs::write(&file, changed).unwrap();
        let why = error(&fresh, &args(&file, &same)).await;
        assert!(why.contains("the file has changed since"), "{why}");
    }
    assert_eq!(fresh.calls.get(), 0);
    fs::write(&file, requests(200)).unwrap();
    done(&fresh, &args(&file, &same)).await;
    // What isn't ours isn't written over.
    let notes = folder.write("notes.txt", "dear diary\n");
    let other = args(
        &file,
        &["--tenant", "acme", "--checkpoint", notes.to_str().unwrap()],
    );
    assert!(error(&fresh, &other).await.contains("is no checkpoint"));
    assert_eq!(folder.read("notes.txt"), "dear diary\n");
}

#[tokio::test]
async fn what_cant_be_begun_says_why() {
    let folder = Folder::new();
    let fake = Fake::default();
    let unnamed = folder.write("mail.txt", "");
    assert!(
        error(&fake, &args(&unnamed, &[]))
            .await
            .contains("--format")
    );
    assert!(
        error(&fake, &args(&folder.0.join("none.csv"), &[]))
            .await
            .contains("can't read it")
    );
    let columns = folder.write("list.csv", "send_id,tenant,from,to,subject,text,colour\n");
    let why = error(&fake, &args(&columns, &[])).await;
    assert!(why.contains("column 7 is \"colour\""), "{why}");
    let empty = folder.write("empty.csv", "");
    assert!(
        error(&fake, &args(&empty, &[]))
            .await
            .contains("it is empty")
    );
    // A file without rows is done at once.
    let none = folder.write("none.jsonl", "\n\n");
    let (exit, report) = done(&fake, &args(&none, &[])).await;
    assert_eq!((exit, report.rows, report.done), (Exit::Done, 0, true));
}

#[tokio::test]
async fn large_mails_share_a_call_as_far_as_they_fit() {
    let folder = Folder::new();
    let body = "x".repeat(400_000);
    let text = (0..12).fold(String::new(), |mut text, n| {
        writeln!(
            text,
            "{}",
            request(&format!("m-{n:05}")).replace("\"t\"}", &format!("\"{body}\"}}"))
        )
        .unwrap();
        text
    });
    let file = folder.write(
        "mail.jsonl",
        text + &"y".repeat(3_000_000) + "\n" + &request("last"),
    );
    let fake = Fake::default();
    let (_, report) = done(&fake, &args(&file, &[])).await;
    assert_eq!((report.accepted, report.refused), (13, 1));
    assert!(fake.calls.get() >= 6);
    assert!(folder.read("mail.jsonl.refused").contains("13,too_large,"));
}
