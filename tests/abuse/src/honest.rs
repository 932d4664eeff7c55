//! The client that must not notice: pairs of SET and GET at a steady pace, and a watcher that hears every change.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::num::NonZeroU16;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use statestore_mqtt::frame::Framed;
use statestore_mqtt::packet::Packet;
use statestore_mqtt::property::Property;
use statestore_mqtt::{Qos, Reason};

use crate::clock;
use crate::packets::{self, Hello};
use crate::place::{Place, Stream};
use crate::rank;

pub(crate) const ASKER: &str = "honest";
const WATCHER: &str = "watcher";
const NEWCOMER: &str = "newcomer";
const KEY: &[u8] = b"honest/key";

/// A pair of requests begins this often.
const PACE: Duration = Duration::from_millis(5);

/// Other clients connect this often.
const NEWCOMER_PACE: Duration = Duration::from_millis(20);

/// A request without an answer for so long has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// The largest packet that is taken, in bytes.
const PACKET_MAX: usize = 2 << 20;

/// What became of it.
#[derive(Default)]
struct Log {
    /// When each request began, and how long it took.
    took: Vec<(Instant, Duration)>,
    failures: Vec<String>,
    /// How a connection was lost, or could not be made again.
    lost: Vec<String>,
    acknowledged: Vec<u64>,
    heard: Vec<u64>,
    /// How many clients connected, and how many of them did not succeed.
    newcomers: (usize, usize),
}

/// What there is to judge.
pub(crate) struct Account {
    pub(crate) took: Vec<(Instant, Duration)>,
    pub(crate) failures: Vec<String>,
    pub(crate) lost: Vec<String>,
    /// What is wrong with what the watcher heard.
    pub(crate) watch: Option<String>,
    /// How many other clients connected, and how many of them did not succeed.
    pub(crate) newcomers: (usize, usize),
}

pub(crate) struct Honest {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    newcomers: Option<JoinHandle<()>>,
}

struct Shared {
    place: Place,
    is_over: AtomicBool,
    log: Mutex<Log>,
    /// Ends the wait of the watcher.
    watching: Mutex<Option<TcpStream>>,
}

impl Honest {
    /// Starts it, once it watches.
    pub(crate) fn start(place: &Place, has_newcomers: bool) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            place: place.clone(),
            is_over: AtomicBool::new(false),
            log: Mutex::default(),
            watching: Mutex::default(),
        });
        let mut watcher = Line::open(place, WATCHER)?;
        let registered = watcher.ask(&[b"KEYNOTIFY", KEY])?;
        if registered != b"+OK\r\n" {
            return Err(io::Error::other("the watcher is refused"));
        }
        *shared.watching() = Some(watcher.socket.try_clone()?);
        let asker = Line::open(place, ASKER)?;
        let (watching, asking) = (Arc::clone(&shared), Arc::clone(&shared));
        let threads = vec![
            thread::spawn(move || {
                rank::first();
                watching.watch(watcher);
            }),
            thread::spawn(move || {
                rank::first();
                asking.ask(asker);
            }),
        ];
        let connecting = Arc::clone(&shared);
        let newcomers = has_newcomers.then(|| {
            thread::spawn(move || {
                rank::first();
                connecting.connect_newcomers();
            })
        });
        Ok(Self { shared, threads, newcomers })
    }

    /// Ends it when the watcher has heard the last, or no longer can.
    pub(crate) fn stop(mut self) -> Account {
        self.shared.is_over.store(true, Ordering::Relaxed);
        let connected = self.newcomers.take().is_none_or(|thread| thread.join().is_ok());
        let asker = self.threads.pop();
        let asked = asker.is_some_and(|thread| thread.join().is_ok());
        let begun = clock::now();
        while self.shared.log().is_behind() && clock::now() - begun < PATIENCE {
            clock::pause(PACE);
        }
        if let Some(socket) = self.shared.watching().take() {
            let _ = socket.shutdown(Shutdown::Both);
        }
        let watched = self.threads.pop().is_some_and(|thread| thread.join().is_ok());
        let log = std::mem::take(&mut *self.shared.log());
        let mut failures = log.failures;
        if !(asked && watched && connected) {
            failures.push("a thread of the honest client has ended".into());
        }
        let watch = wrong(&log.acknowledged, &log.heard);
        Account { took: log.took, failures, lost: log.lost, watch, newcomers: log.newcomers }
    }
}

impl Log {
    fn is_behind(&self) -> bool {
        self.acknowledged.last().is_some_and(|last| !self.heard.contains(last))
    }
}

/// What is wrong with the changes that were heard, each once and in order, when these were acknowledged. Others may have
/// been made by a request whose answer was lost.
fn wrong(acknowledged: &[u64], heard: &[u64]) -> Option<String> {
    if let Some(pair) = heard.windows(2).find(|pair| pair[0] >= pair[1]) {
        return Some(format!("the watcher heard {} after {}", pair[1], pair[0]));
    }
    let missing = acknowledged.iter().find(|change| heard.binary_search(change).is_err())?;
    Some(format!("the watcher did not hear {missing}"))
}

impl Shared {
    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watching(&self) -> MutexGuard<'_, Option<TcpStream>> {
        self.watching.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn watch(&self, mut line: Line) {
        loop {
            match line.message() {
                Ok(message) => {
                    // The value is the last of what a notification says.
                    let text = String::from_utf8_lossy(&message.payload).into_owned();
                    let number = text.trim_end().rsplit("\r\n").next().map(str::parse);
                    let mut log = self.log();
                    match number {
                        Some(Ok(number)) => log.heard.push(number),
                        _ => log.failures.push(format!("the watcher heard {text:?}")),
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock && !self.is_over() => {}
                Err(_) if self.is_over() => return,
                Err(error) => {
                    self.log().failures.push(format!("the watcher: {error}"));
                    return;
                }
            }
        }
    }

    fn ask(&self, mut line: Line) {
        let mut number = 0;
        let mut due = clock::now();
        while !self.is_over() {
            number += 1;
            if let Err(error) = self.pair(&mut line, number) {
                self.log().lost.push(error.to_string());
                match Line::open(&self.place, ASKER) {
                    Ok(again) => line = again,
                    Err(error) => self.log().lost.push(format!("to connect: {error}")),
                }
            }
            due = clock::now().max(due + PACE);
            clock::pause(due - clock::now());
        }
    }

    /// Connects one client after the other; each sends a request.
    fn connect_newcomers(&self) {
        while !self.is_over() {
            let connected = Line::open(&self.place, NEWCOMER)
                .and_then(|mut line| line.ask(&[b"GET", b"honest/newcomer"]));
            let mut log = self.log();
            log.newcomers.0 += 1;
            log.newcomers.1 += usize::from(connected.is_err());
            drop(log);
            clock::pause(NEWCOMER_PACE);
        }
    }

    fn pair(&self, line: &mut Line, number: u64) -> io::Result<()> {
        let text = number.to_string();
        self.one(line, &[b"SET", KEY, text.as_bytes()], b"+OK\r\n")?;
        self.log().acknowledged.push(number);
        let expected = format!("${}\r\n{text}\r\n", text.len());
        self.one(line, &[b"GET", KEY], expected.as_bytes())
    }

    fn one(&self, line: &mut Line, words: &[&[u8]], expected: &[u8]) -> io::Result<()> {
        let begun = clock::now();
        let answer = line.ask(words)?;
        let mut log = self.log();
        log.took.push((begun, clock::now() - begun));
        if answer != expected {
            let answer = String::from_utf8_lossy(&answer).into_owned();
            log.failures.push(format!("answered {answer:?}"));
        }
        Ok(())
    }
}

/// A connection that blocks.
struct Line {
    client_id: &'static str,
    stream: Box<dyn Stream>,
    socket: TcpStream,
    framed: Framed,
    id: NonZeroU16,
}

struct Message {
    topic: String,
    correlation: Option<Vec<u8>>,
    payload: Vec<u8>,
}

impl Line {
    fn open(place: &Place, client_id: &'static str) -> io::Result<Self> {
        let (stream, socket) = place.open(PATIENCE)?;
        let framed = Framed::new(PACKET_MAX);
        let mut line = Self { client_id, stream, socket, framed, id: NonZeroU16::MIN };
        let login = place.login.as_ref().map(|(name, password)| (&**name, &**password));
        line.send(&packets::connect(client_id, Hello { login, ..Hello::default() }))?;
        let welcome = line.packet()?;
        match Packet::decode(&welcome) {
            Ok(Packet::ConnAck(told)) if told.reason == Reason::SUCCESS => {}
            other => return Err(io::Error::other(format!("{other:?} instead of a welcome"))),
        }
        let topic = packets::response_topic(client_id);
        line.send(&packets::subscribe(&[&topic], Qos::AtLeastOnce))?;
        line.packet()?;
        Ok(line)
    }

    /// Asks for something and waits for the answer, the payload of the next message.
    fn ask(&mut self, words: &[&[u8]]) -> io::Result<Vec<u8>> {
        self.id = self.id.checked_add(1).unwrap_or(NonZeroU16::MIN);
        let request = packets::request(self.client_id, self.id, words);
        let sent = correlation(&request);
        self.send(&request)?;
        let answer = self.message()?;
        if answer.topic != packets::response_topic(self.client_id) || answer.correlation != sent {
            return Err(io::Error::other(format!("a message of others on {}", answer.topic)));
        }
        Ok(answer.payload)
    }

    /// The next message; it is acknowledged.
    fn message(&mut self) -> io::Result<Message> {
        loop {
            let bytes = self.packet()?;
            match Packet::decode(&bytes) {
                Ok(Packet::Publish(publish)) => {
                    let message = Message {
                        topic: publish.topic.to_owned(),
                        correlation: correlation(&bytes),
                        payload: publish.payload.to_vec(),
                    };
                    if let Some(id) = publish.id {
                        self.send(&packets::puback(id))?;
                    }
                    return Ok(message);
                }
                Ok(Packet::PubAck(ack)) if !ack.reason.is_error() => {}
                other => return Err(io::Error::other(format!("{other:?}"))),
            }
        }
    }

    fn packet(&mut self) -> io::Result<BytesMut> {
        let mut space = [0; 16 << 10];
        loop {
            if let Some(packet) = self.framed.next_packet().map_err(io::Error::other)? {
                return Ok(packet);
            }
            match self.stream.read(&mut space)? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                count => self.framed.buffer_mut().extend_from_slice(&space[..count]),
            }
        }
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)?;
        self.stream.flush()
    }
}

fn correlation(packet: &[u8]) -> Option<Vec<u8>> {
    let Ok(Packet::Publish(publish)) = Packet::decode(packet) else { return None };
    publish.properties.iter().find_map(|property| match property {
        Property::CorrelationData(data) => Some(data.to_vec()),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watcher_hears_each_change_once_and_in_order() {
        assert_eq!(wrong(&[1, 2, 4], &[1, 2, 4]), None);
        assert_eq!(wrong(&[1, 2, 4], &[1, 2, 3, 4]), None, "the answer to 3 was lost");
        assert!(wrong(&[1, 2], &[1]).is_some());
        assert!(wrong(&[1, 2], &[1, 2, 2]).is_some());
        assert!(wrong(&[1, 2], &[2, 1]).is_some());
    }
}
