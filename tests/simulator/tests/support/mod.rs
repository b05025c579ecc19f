//! The simulator as a child process, and a plain HTTP client of one keep-alive connection.
#![allow(dead_code, reason = "no test uses all of it")]

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// How long anything may take before the test fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// A running simulator; killed when dropped.
pub(crate) struct Server {
    pub(crate) process: Child,
    address: String,
}

impl Server {
    /// Starts one without latency.
    pub(crate) fn start(flags: &[&str]) -> Self {
        let quiet = ["--latency-median-ms", "0", "--latency-p99-ms", "0"];
        let mut process = Command::new(env!("CARGO_BIN_EXE_ses-simulator"))
            .args(quiet)
            .args(flags)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let stdout = process.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        let address = line.trim_end().strip_prefix("listening on http://");
        let address = address
            .unwrap_or_else(|| panic!("not ready: {line:?}"))
            .to_owned();
        Self { process, address }
    }

    pub(crate) fn connect(&self) -> Client {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Client {
            stream: BufReader::new(stream),
        }
    }

    /// Sends SIGTERM and waits for the end.
    pub(crate) fn terminate(mut self) -> ExitStatus {
        let pid = self.process.id().to_string();
        assert!(Command::new("kill").arg(pid).status().unwrap().success());
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "still running after SIGTERM");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&self.body)))
    }

    /// The status and the exception, of an error in the AWS shape.
    pub(crate) fn error(&self) -> (u16, &str) {
        let message = self.json()["message"].clone();
        assert!(message.is_string(), "no message in {self:?}");
        (self.status, self.header("x-amzn-errortype").unwrap())
    }
}

/// One connection.
pub(crate) struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    pub(crate) fn request(&mut self, method: &str, path: &str, body: &str) -> Answer {
        self.write(method, path, body).unwrap();
        self.read().unwrap()
    }

    pub(crate) fn write(&mut self, method: &str, path: &str, body: &str) -> io::Result<()> {
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: ses\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        self.stream.get_mut().write_all(request.as_bytes())
    }

    pub(crate) fn read(&mut self) -> io::Result<Answer> {
        let status = self.line()?;
        let status = status.split(' ').nth(1).unwrap_or_default();
        let status = status.parse().map_err(io::Error::other)?;
        let mut headers = Vec::new();
        loop {
            let line = self.line()?;
            let Some((name, value)) = line.split_once(':') else {
                break;
            };
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let mut answer = Answer {
            status,
            headers,
            body: Vec::new(),
        };
        let length = answer.header("content-length").unwrap_or("0");
        answer.body = vec![0; length.parse().map_err(io::Error::other)?];
        self.stream.read_exact(&mut answer.body)?;
        Ok(answer)
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }

    /// What comes until the connection ends, and the error it ends with, if any.
    pub(crate) fn rest(&mut self) -> (Vec<u8>, Option<io::ErrorKind>) {
        let mut rest = Vec::new();
        let end = self.stream.read_to_end(&mut rest);
        (rest, end.err().map(|error| error.kind()))
    }

    pub(crate) fn send(&mut self, mail: &Value) -> Answer {
        self.request("POST", "/v2/email/outbound-emails", &mail.to_string())
    }

    pub(crate) fn settings(&mut self, changes: &Value) -> Answer {
        self.request("PUT", "/_simulator/settings", &changes.to_string())
    }

    /// Replaces the faults.
    pub(crate) fn faults(&mut self, rules: &Value) -> Answer {
        let body = json!({ "faults": rules }).to_string();
        self.request("PUT", "/_simulator/faults", &body)
    }

    pub(crate) fn record(&mut self) -> Vec<Value> {
        let answer = self.request("GET", "/_simulator/record", "");
        assert_eq!(answer.status, 200);
        answer.json().as_array().unwrap().clone()
    }
}

/// A mail to so many recipients.
pub(crate) fn mail(recipients: usize) -> Value {
    json!({
        "FromEmailAddress": "shop@example.com",
        "Destination": {"ToAddresses": vec!["someone@example.com"; recipients]},
        "Content": {"Simple": {
            "Subject": {"Data": "a subject"},
            "Body": {"Text": {"Data": "a text"}},
        }},
        "EmailTags": [
            {"Name": "send_id", "Value": "order-1"},
            {"Name": "tenant", "Value": "acme"},
            {"Name": "lane", "Value": "bulk"},
            {"Name": "slot_ms", "Value": "1790000000000"},
            {"Name": "grant_ms", "Value": "1790000000001"},
        ],
    })
}
