//! One connection from its first byte to its last.

use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::BytesMut;
use statestore_mqtt::broker::{ConnectionId, Output};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};

use crate::running::Running;

/// How long a client has to take its last packet.
const GOODBYE_MAX: Duration = Duration::from_secs(1);

/// Bytes read at a time, and handled in one go.
const READ_MAX: usize = 16 << 10;

/// A buffer for writing that is larger than this is given back when it is empty.
const KEPT_MAX: usize = 4 << 10;

/// Serves a connection that was accepted, until it ends.
pub(crate) async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    running: &Arc<Running>,
    id: ConnectionId,
    mut stream: S,
) {
    // What goes wrong with the socket ends the connection, and that is all there is to do about it.
    let _ = converse(running, id, &mut stream).await;
    running.closed(id);
    let _ = tokio::time::timeout(GOODBYE_MAX, stream.shutdown()).await;
}

async fn converse<S: AsyncRead + AsyncWrite + Unpin>(
    running: &Arc<Running>,
    id: ConnectionId,
    stream: &mut S,
) -> io::Result<()> {
    let Some(told) = running.connected(id) else { return Ok(()) };
    let mut out = BytesMut::new();
    loop {
        let (output, wants_input) = running.with(|machine, now| {
            let output = machine.poll_output(now, id, &mut out);
            (output, machine.wants_input(id))
        });
        if output == Output::Close {
            let _ = tokio::time::timeout(GOODBYE_MAX, stream.write_all_buf(&mut out)).await;
            return Ok(());
        }
        let mut is_told = false;
        while !out.is_empty() {
            tokio::select! {
                written = stream.write_buf(&mut out) => {
                    written?;
                }
                // It may be that the connection has to end, whatever is left to be written.
                () = told.notified() => {
                    is_told = true;
                    if running.with(|machine, _| machine.is_closing(id)) {
                        let rest = stream.write_all_buf(&mut out);
                        tokio::time::timeout(GOODBYE_MAX, rest).await??;
                    }
                }
            }
        }
        if out.capacity() > KEPT_MAX {
            out = BytesMut::new();
        }
        if output == Output::More || is_told {
            continue;
        }
        tokio::select! {
            read = poll_fn(|context| read(running, id, stream, context)), if wants_input => {
                if read? == 0 {
                    return Ok(());
                }
            }
            () = told.notified() => {}
        }
    }
}

/// Reads what there is, and hands it to the broker. Nothing is kept for a connection that says nothing.
fn read<S: AsyncRead + Unpin>(
    running: &Arc<Running>,
    id: ConnectionId,
    stream: &mut S,
    context: &mut Context<'_>,
) -> Poll<io::Result<usize>> {
    let mut space = [const { MaybeUninit::uninit() }; READ_MAX];
    let mut buffer = ReadBuf::uninit(&mut space);
    ready!(Pin::new(stream).poll_read(context, &mut buffer))?;
    let bytes = buffer.filled();
    if !bytes.is_empty() {
        running.with(|machine, now| machine.handle_bytes(now, id, bytes));
    }
    Poll::Ready(Ok(bytes.len()))
}
