//! A [`Session`] over a blocking TCP socket.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use statestore_mqtt::Reason;
use statestore_mqtt::packet::{Notice, Packet};
use statestore_proto::mqtt::Transmit;
use statestore_proto::time::{Instant, Now, UnixTime};

use super::session::{Error, News, Options, Session};

/// Reads the clocks. One of these serves all connections of a machine, or its deadlines mean nothing.
#[derive(Clone, Copy, Debug)]
pub struct Clock(std::time::Instant);

impl Clock {
    /// A monotonic clock that begins now.
    #[expect(clippy::disallowed_methods, reason = "whoever drives a machine reads the clocks")]
    #[must_use]
    pub fn start() -> Self {
        Self(std::time::Instant::now())
    }

    /// Both readings.
    #[expect(clippy::disallowed_methods, reason = "whoever drives a machine reads the clocks")]
    #[must_use]
    pub fn now(&self) -> Now {
        let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let (instant, unix) = (millis(self.0.elapsed()), millis(unix));
        Now::new(Instant::from_millis(instant), UnixTime::from_millis(unix))
    }
}

/// A connection to a broker.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    session: Session,
    clock: Clock,
}

impl Connection {
    /// Connects to `host:port` and sends a CONNECT. [`receive_before`](Self::receive_before) tells when it is accepted.
    ///
    /// # Errors
    /// [`Error::Io`] when nobody is there.
    pub fn open(address: &str, clock: Clock, options: Options) -> Result<Self, Error> {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let patience = options.patience.max(Duration::from_millis(1));
        let stream = connect(address, patience)?;
        // A request is many small packets, and each is waited for.
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(patience))?;
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let session = Session::new(clock.now().instant, number, options)?;
        Ok(Self { stream, session, clock })
    }

    /// Whether another packet may be sent now.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.session.has_room()
    }

    /// Takes a packet to be sent. It is written at the next call of another method.
    pub fn send(&mut self, transmit: &Transmit) {
        self.session.send(transmit);
    }

    /// Writes what was sent. A broker that takes nothing for as long as it may be [silent](Options::patience) is lost.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn flush(&mut self) -> Result<(), Error> {
        while !self.session.output().is_empty() {
            match self.stream.write(self.session.output()) {
                Ok(0) => return Err(Error::Closed),
                Ok(len) => self.session.written(self.clock.now().instant, len),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Waits for news, but no longer than until `until`; `None` then. A message is news only if one is wanted.
    ///
    /// A time that has come is told before news that wait, so that a busy connection holds up no deadline.
    ///
    /// # Errors
    /// [`Error`], after which the connection is of no more use.
    pub fn receive_before(
        &mut self,
        until: Option<Instant>,
        wants_messages: bool,
    ) -> Result<Option<News>, Error> {
        let received = self.wait(until, wants_messages);
        if let Some(reason) = received.as_ref().err().and_then(Error::reason) {
            self.say_goodbye(reason);
        }
        received
    }

    fn wait(
        &mut self,
        until: Option<Instant>,
        wants_messages: bool,
    ) -> Result<Option<News>, Error> {
        loop {
            let now = self.clock.now().instant;
            if until.is_some_and(|until| until <= now) {
                self.flush()?;
                return Ok(None);
            }
            self.session.handle_timeout(now)?;
            // Before anything else, since what is written makes room.
            self.flush()?;
            if let Some(news) = self.session.poll(wants_messages) {
                return Ok(Some(news));
            }
            let wake = [until, self.session.poll_timeout()].into_iter().flatten().min();
            let left = wake.map(|wake| wake.duration_since(now).max(Duration::from_millis(1)));
            self.read(left)?;
        }
    }

    /// Reads once, and waits for so long at most.
    fn read(&mut self, timeout: Option<Duration>) -> Result<(), Error> {
        let mut chunk = [0; 16 * 1024];
        self.stream.set_read_timeout(timeout)?;
        match self.stream.read(&mut chunk) {
            Ok(0) => Err(Error::Closed),
            Ok(len) => {
                let now = self.clock.now().instant;
                self.session.handle_bytes(now, chunk.get(..len).unwrap_or_default())
            }
            // Systems differ in what they call a time that is over.
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => Ok(()),
                _ => Err(error.into()),
            },
        }
    }

    /// Ends the connection in good order.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn close(mut self) -> Result<(), Error> {
        self.flush()?;
        self.say_goodbye(Reason::SUCCESS);
        Ok(())
    }

    /// Tells the broker why the connection ends, if it still listens.
    fn say_goodbye(&mut self, reason: Reason) {
        let mut bytes = [0; 8];
        let packet = Packet::Disconnect(Notice { reason, properties: () });
        let len = packet.encode_into(&mut bytes).unwrap_or_default();
        let _ = self.stream.write_all(bytes.get(..len).unwrap_or_default());
    }
}

/// Tries the addresses of a name in turn.
fn connect(address: &str, patience: Duration) -> Result<TcpStream, Error> {
    let mut last = Error::Io(ErrorKind::NotFound.into());
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, patience) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error.into(),
        }
    }
    Err(last)
}
