//! A server that answers as CloudFormation and Lambda would, and keeps what it was asked.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use serde_json::Value;

/// What was asked.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) path: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: String,
}

impl Asked {
    /// What a function was invoked with; nothing if it wasn't an invocation.
    pub(crate) fn payload(&self) -> Option<Value> {
        self.path
            .contains("/functions/")
            .then(|| serde_json::from_str(&self.body).unwrap())
    }
}

/// What is answered.
pub(crate) struct Reply {
    status: u16,
    headers: Vec<(&'static str, &'static str)>,
    body: String,
}

impl Reply {
    /// A function's answer.
    pub(crate) fn json(answer: &Value) -> Self {
        Self::with(200, answer.to_string())
    }

    pub(crate) fn with(status: u16, body: impl Into<String>) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: body.into(),
        }
    }

    pub(crate) fn header(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.push((name, value));
        self
    }

    /// An error of Lambda's.
    pub(crate) fn lambda(status: u16, kind: &'static str) -> Self {
        let body = r#"{"Type":"User","message":"it was so, says arn:aws:iam::1:user/somebody"}"#;
        Self::with(status, body).header("x-amzn-errortype", kind)
    }

    /// An error of CloudFormation's.
    pub(crate) fn cloudformation(status: u16, code: &str, message: &str) -> Self {
        Self::with(
            status,
            format!(
                "<ErrorResponse xmlns=\"http://cloudformation.amazonaws.com/doc/2010-05-15/\"><Error><Type>Sender</Type>\
                 <Code>{code}</Code><Message>{message}</Message></Error><RequestId>1</RequestId></ErrorResponse>"
            ),
        )
    }
}

/// The outputs that the command reads.
pub(crate) const OUTPUTS: [(&str, &str); 5] = [
    ("ControlFunctionName", "sendslot-control"),
    ("QuotaRefreshFunctionName", "sendslot-quota-refresh"),
    ("ReserveFunctionName", "sendslot-reserve"),
    ("PriorityIntakeQueueUrl", "http://queue/priority-intake"),
    ("BulkIntakeQueueUrl", "http://queue/bulk-intake"),
];

/// A stack with these outputs.
pub(crate) fn stack(outputs: &[(&str, &str)]) -> Reply {
    let outputs = outputs.iter().map(|(key, value)| {
        format!("<member><OutputKey>{key}</OutputKey><OutputValue>{value}</OutputValue></member>")
    });
    let outputs: String = outputs.collect();
    Reply::with(
        200,
        format!(
            "<DescribeStacksResponse xmlns=\"http://cloudformation.amazonaws.com/doc/2010-05-15/\"><DescribeStacksResult><Stacks>\
             <member><StackName>sendslot</StackName><StackStatus>CREATE_COMPLETE</StackStatus>\
             <CreationTime>2026-12-01T00:00:00Z</CreationTime><Outputs>{outputs}</Outputs></member>\
             </Stacks></DescribeStacksResult></DescribeStacksResponse>"
        ),
    )
}

/// The server. It ends with the test.
pub(crate) struct Aws {
    pub(crate) url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Aws {
    /// Answers everything with this.
    pub(crate) fn answering(answer: impl FnMut(&Asked) -> Reply + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::<Mutex<Vec<Asked>>>::default();
        let answer = Arc::new(Mutex::new(answer));
        let kept = asked.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (kept, answer) = (kept.clone(), answer.clone());
                let stream = stream.unwrap();
                thread::spawn(move || {
                    while let Some(asked) = read(&stream) {
                        kept.lock().unwrap().push(asked.clone());
                        let reply = (answer.lock().unwrap())(&asked);
                        if write(&stream, &reply).is_none() {
                            break;
                        }
                    }
                });
            }
        });
        Self { url, asked }
    }

    /// A stack whose functions answer with these in turn, and with the last again and again.
    pub(crate) fn invoked(mut answers: Vec<Reply>) -> Self {
        answers.reverse();
        Self::answering(move |asked| {
            if asked.payload().is_none() {
                return stack(&OUTPUTS);
            }
            if answers.len() > 1 {
                answers.pop().unwrap()
            } else {
                let last = &answers[0];
                Reply {
                    status: last.status,
                    headers: last.headers.clone(),
                    body: last.body.clone(),
                }
            }
        })
    }

    /// All that was asked so far.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    /// What functions were invoked with so far.
    pub(crate) fn payloads(&self) -> Vec<Value> {
        self.asked().iter().filter_map(Asked::payload).collect()
    }

    /// Waits until so many invocations were made.
    pub(crate) fn wait_for(&self, invocations: usize) {
        for _ in 0..1_000 {
            if self.payloads().len() >= invocations {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
        panic!(
            "{} of {invocations} invocations came",
            self.payloads().len()
        );
    }
}

fn read(stream: &TcpStream) -> Option<Asked> {
    let mut from = BufReader::new(stream);
    let mut line = String::new();
    from.read_line(&mut line).ok().filter(|read| *read > 0)?;
    let path = line.split(' ').nth(1)?.to_owned();
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        from.read_line(&mut line).ok().filter(|read| *read > 0)?;
        let Some((name, value)) = line.trim().split_once(':') else {
            break;
        };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers
        .get("content-length")
        .map_or(0, |text| text.parse().unwrap());
    let mut body = vec![0; length];
    from.read_exact(&mut body).ok()?;
    let body = String::from_utf8(body).unwrap();
    Some(Asked {
        path,
        headers,
        body,
    })
}

fn write(mut stream: &TcpStream, reply: &Reply) -> Option<()> {
    let headers = reply
        .headers
        .iter()
        .map(|(name, value)| format!("{name}: {value}\r\n"));
    let headers: String = headers.collect();
    let (status, body) = (reply.status, &reply.body);
    let length = body.len();
    let answer = format!("HTTP/1.1 {status} so\r\n{headers}content-length: {length}\r\n\r\n{body}");
    stream.write_all(answer.as_bytes()).ok()
}
