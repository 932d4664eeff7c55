//! An [`Adapter`] over a blocking TCP socket.

use std::io::{ErrorKind, IoSlice, Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use statestore_mqtt::session::Options;
use statestore_proto::time::{Instant, Now, UnixTime};
use statestore_proto::transport::Transmit;

use super::adapter::{Adapter, Error, MachineEvent, Role, TIMEOUT};

/// Slices of one vectored write.
const SLICES_MAX: usize = 16;

/// The clocks. All connections of a machine must use the same one, since deadlines refer to it.
#[derive(Clone, Copy, Debug)]
pub struct Clock(std::time::Instant);

impl Clock {
    /// Creates a monotonic clock that starts at zero.
    #[expect(clippy::disallowed_methods, reason = "the driver of a machine reads the clocks")]
    #[must_use]
    pub fn start() -> Self {
        Self(std::time::Instant::now())
    }

    /// Reads both clocks.
    #[expect(clippy::disallowed_methods, reason = "the driver of a machine reads the clocks")]
    #[must_use]
    pub fn now(&self) -> Now {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Now::new(Instant::from_origin(self.0.elapsed()), UnixTime::from_epoch(unix))
    }
}

/// A connection to a broker.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    adapter: Adapter,
    clock: Clock,
}

impl Connection {
    /// Connects to `host:port` and sends a CONNECT. [`receive_before`](Self::receive_before)
    /// reports the CONNACK.
    ///
    /// # Errors
    /// [`Error::Io`] if the connection fails.
    pub fn open(address: &str, clock: Clock, role: Role, options: Options) -> Result<Self, Error> {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let stream = connect(address)?;
        // A request takes several small packets, which must not be delayed.
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let adapter = Adapter::new(clock.now().instant, number, role, options)?;
        Ok(Self { stream, adapter, clock })
    }

    /// Returns whether another packet can be sent.
    #[must_use]
    pub fn has_capacity(&self) -> bool {
        self.adapter.has_capacity()
    }

    /// Queues a packet. The next call of another method writes it.
    pub fn send(&mut self, transmit: &Transmit) {
        self.adapter.send(transmit);
    }

    /// Writes the queued packets together. The connection is lost if the broker reads nothing for
    /// the [timeout](TIMEOUT).
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn flush(&mut self) -> Result<(), Error> {
        loop {
            let chunks = self.adapter.chunks().take(SLICES_MAX);
            let slices: Vec<_> = chunks.map(IoSlice::new).collect();
            if slices.is_empty() {
                return Ok(());
            }
            match self.stream.write_vectored(&slices) {
                Ok(0) => return Err(Error::Io(ErrorKind::WriteZero.into())),
                Ok(len) => self.adapter.written(self.clock.now().instant, len),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Waits for the next event until `until`, then returns `None`. Returns messages only if
    /// `can_receive`.
    ///
    /// A deadline takes precedence over events, so that a busy connection does not delay it.
    ///
    /// # Errors
    /// [`Error`]; the connection is then unusable.
    pub fn receive_before(
        &mut self,
        until: Option<Instant>,
        can_receive: bool,
    ) -> Result<Option<MachineEvent>, Error> {
        let received = self.wait(until, can_receive);
        if let Err(Error::Session(_) | Error::QosUnsupported) = received {
            // The session may have a DISCONNECT with the reason in its output.
            let _ = self.flush();
        }
        received
    }

    fn wait(
        &mut self,
        until: Option<Instant>,
        can_receive: bool,
    ) -> Result<Option<MachineEvent>, Error> {
        loop {
            let now = self.clock.now().instant;
            if until.is_some_and(|until| until <= now) {
                self.flush()?;
                return Ok(None);
            }
            self.adapter.handle_timeout(now)?;
            // First, since writing frees capacity.
            self.flush()?;
            if let Some(event) = self.adapter.poll(can_receive) {
                return Ok(Some(event));
            }
            let wake = [until, self.adapter.poll_timeout()].into_iter().flatten().min();
            let left = wake.map(|wake| wake.duration_since(now).max(Duration::from_millis(1)));
            self.read(left)?;
        }
    }

    /// Reads once, waiting at most for `timeout`.
    fn read(&mut self, timeout: Option<Duration>) -> Result<(), Error> {
        let mut chunk = [0; 16 * 1024];
        self.stream.set_read_timeout(timeout)?;
        let read = self.stream.read(&mut chunk);
        let now = self.clock.now().instant;
        match read {
            Ok(0) => self.adapter.handle_end(now),
            Ok(len) => self.adapter.handle_bytes(now, chunk.get(..len).unwrap_or_default()),
            // The error kind of a timeout depends on the platform.
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => Ok(()),
                _ => Err(error.into()),
            },
        }
    }

    /// Sends a DISCONNECT and closes the connection.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn close(mut self) -> Result<(), Error> {
        self.adapter.disconnect();
        self.flush()
    }
}

/// Tries the addresses of a host name in order.
fn connect(address: &str) -> Result<TcpStream, Error> {
    let mut last = Error::Io(ErrorKind::NotFound.into());
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, TIMEOUT) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error.into(),
        }
    }
    Err(last)
}
