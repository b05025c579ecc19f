//! An HTTP server that answers as told, and keeps what it was asked.

use std::{
    future::pending,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use auto_pause::aws::Aws;
use aws_config::{BehaviorVersion, Region, retry::RetryConfig};
use aws_sdk_sesv2::config::Credentials;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
};

/// What the server does with a request.
#[derive(Clone, Debug)]
pub(crate) enum Does {
    /// Answers with a status, further header lines and a body.
    Answer(u16, &'static str, Vec<u8>),
    /// Says nothing, ever.
    Hang,
    /// Closes the connection without an answer.
    Close,
}

impl Does {
    pub(crate) fn json(body: &str) -> Self {
        Self::Answer(200, "content-type: application/json\r\n", body.into())
    }

    pub(crate) fn fail(status: u16, header: &'static str) -> Self {
        Self::Answer(status, header, "{}".into())
    }
}

/// What it was asked: the first line and headers, in lower case but for the first, and the body.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) line: String,
    pub(crate) headers: Vec<String>,
    pub(crate) body: Vec<u8>,
}

pub(crate) struct Server {
    pub(crate) url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Server {
    /// It does these one after the other, and the last again and again.
    pub(crate) async fn that(does: impl Into<Vec<Does>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::<Mutex<Vec<_>>>::default();
        let (does, seen) = (Arc::new(does.into()), asked.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, does.clone(), seen.clone()));
            }
        });
        Self { url, asked }
    }

    pub(crate) fn asked(&self) -> MutexGuard<'_, Vec<Asked>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All of AWS, with retries as deployed.
    pub(crate) async fn aws(&self) -> Aws {
        let config = aws_config::defaults(BehaviorVersion::latest())
            .region(Region::new("eu-west-1"))
            .credentials_provider(Credentials::new("id", "key", None, None, "test"))
            .endpoint_url(&self.url)
            .retry_config(RetryConfig::standard())
            .http_client(aws_smithy_http_client::Builder::new().build_http());
        Aws::new(&config.load().await, "stack-control".into())
    }
}

async fn serve(
    stream: TcpStream,
    does: Arc<Vec<Does>>,
    asked: Arc<Mutex<Vec<Asked>>>,
) -> Option<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let mut head = Vec::new();
        loop {
            let mut line = String::new();
            let read = stream.read_line(&mut line).await.ok()?;
            if read == 0 {
                return None;
            }
            match line.trim() {
                "" => break,
                line if head.is_empty() => head.push(line.to_owned()),
                line => head.push(line.to_ascii_lowercase()),
            }
        }
        let length = head
            .iter()
            .find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        stream.read_exact(&mut body).await.ok()?;
        let number = {
            let mut asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
            asked.push(Asked {
                line: head.remove(0),
                headers: head,
                body,
            });
            asked.len() - 1
        };
        match does.get(number).or(does.last())? {
            Does::Answer(status, headers, body) => {
                let length = body.len();
                let head =
                    format!("HTTP/1.1 {status} Any\r\n{headers}content-length: {length}\r\n\r\n");
                stream.write_all(head.as_bytes()).await.ok()?;
                stream.write_all(body).await.ok()?;
            }
            Does::Hang => pending().await,
            Does::Close => return None,
        }
    }
}
