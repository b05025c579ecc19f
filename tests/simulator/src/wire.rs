//! Connections that can be cut without an answer.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};

use crate::account::Cut;

/// Cuts its connection. A handler has it as `ConnectInfo<Scissors>`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Scissors(Arc<OnceLock<Cut>>);

impl Scissors {
    /// From now on nothing goes out, and the server's next attempt to write ends the connection:
    /// what the handler then answers is not seen.
    pub(crate) fn cut(&self, how: Cut) {
        // The first cut decides; there is no second request on a connection that was cut.
        let _ = self.0.set(how);
    }
}

/// A listener of such connections.
#[derive(Debug)]
pub(crate) struct Wires(pub(crate) TcpListener);

impl Listener for Wires {
    type Io = Wire;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Wire, SocketAddr) {
        let (stream, address) = Listener::accept(&mut self.0).await;
        // An answer is one small segment: it must not wait for the acknowledgement of the last.
        let _ = stream.set_nodelay(true);
        let scissors = Scissors::default();
        (Wire { stream, scissors }, address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

impl Connected<IncomingStream<'_, Wires>> for Scissors {
    fn connect_info(stream: IncomingStream<'_, Wires>) -> Self {
        stream.io().scissors.clone()
    }
}

/// One such connection.
#[derive(Debug)]
pub(crate) struct Wire {
    stream: TcpStream,
    scissors: Scissors,
}

impl Wire {
    fn whole(&self) -> io::Result<()> {
        let Some(how) = self.scissors.0.get() else {
            return Ok(());
        };
        if *how == Cut::Reset {
            // Dropping the stream then sends RST instead of FIN.
            self.stream.set_zero_linger()?;
        }
        Err(io::ErrorKind::ConnectionAborted.into())
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.whole()?;
        Pin::new(&mut self.stream).poll_write(context, data)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.whole()?;
        Pin::new(&mut self.stream).poll_write_vectored(context, data)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.whole()?;
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.whole()?;
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
