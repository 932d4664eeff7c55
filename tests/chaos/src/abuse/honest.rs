//! The honest client: pairs of SET and GET at a steady pace, and a watcher of every change.

use std::io::{self, ErrorKind};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bytes::Bytes;
use statestore_mqtt::Qos;
use statestore_mqtt::session::Event;
use statestore_testkit::wire::client::Client;
use statestore_testkit::wire::packets::Publish;

use crate::abuse::clock;
use crate::abuse::packets;
use crate::abuse::priority;
use crate::abuse::target::{Stream, Target};

pub(crate) const HONEST: &str = "honest";
const WATCHER: &str = "watcher";
const NEWCOMER: &str = "newcomer";
const KEY: &[u8] = b"honest/key";

/// A pair of requests begins this often.
const PACE: Duration = Duration::from_millis(5);

/// Other clients connect this often.
const NEWCOMER_PACE: Duration = Duration::from_millis(20);

/// Maximum time for a response, after which a request has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Observations of the honest client.
#[derive(Default)]
struct Log {
    /// Start and duration of each request.
    took: Vec<(Instant, Duration)>,
    failures: Vec<String>,
    /// Errors of lost connections and of attempts to reconnect.
    lost: Vec<String>,
    acknowledged: Vec<u64>,
    received: Vec<u64>,
    /// Number of clients that connected, and of those that failed.
    newcomers: (usize, usize),
}

/// The observations on which the verdict is based.
pub(crate) struct Account {
    pub(crate) took: Vec<(Instant, Duration)>,
    pub(crate) failures: Vec<String>,
    pub(crate) lost: Vec<String>,
    /// The error in the notifications of the watcher.
    pub(crate) watch: Option<String>,
    /// Number of other clients that connected, and of those that failed.
    pub(crate) newcomers: (usize, usize),
}

pub(crate) struct Honest {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    newcomers: Option<JoinHandle<()>>,
}

struct Shared {
    target: Target,
    is_over: AtomicBool,
    log: Mutex<Log>,
    /// Ends the wait of the watcher.
    watching: Mutex<Option<TcpStream>>,
}

impl Honest {
    /// Starts the client and registers its watcher.
    pub(crate) fn start(target: &Target, has_newcomers: bool) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            target: target.clone(),
            is_over: AtomicBool::new(false),
            log: Mutex::default(),
            watching: Mutex::default(),
        });
        let mut watcher = Line::open(target, WATCHER)?;
        let registered = watcher.request(&[b"KEYNOTIFY", KEY])?;
        if registered != b"+OK\r\n" {
            return Err(io::Error::other("the watcher is refused"));
        }
        *shared.watching() = Some(watcher.socket.try_clone()?);
        let requester = Line::open(target, HONEST)?;
        let (watching, requesting) = (Arc::clone(&shared), Arc::clone(&shared));
        let threads = vec![
            thread::spawn(move || {
                priority::raise();
                watching.watch(watcher);
            }),
            thread::spawn(move || {
                priority::raise();
                requesting.send_pairs(requester);
            }),
        ];
        let connecting = Arc::clone(&shared);
        let newcomers = has_newcomers.then(|| {
            thread::spawn(move || {
                priority::raise();
                connecting.connect_newcomers();
            })
        });
        Ok(Self { shared, threads, newcomers })
    }

    /// Ends the client once the watcher has received the last change, or a timeout.
    pub(crate) fn stop(mut self) -> Account {
        self.shared.is_over.store(true, Ordering::Relaxed);
        let connected = self.newcomers.take().is_none_or(|thread| thread.join().is_ok());
        let requester = self.threads.pop();
        let requested = requester.is_some_and(|thread| thread.join().is_ok());
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
        if !(requested && watched && connected) {
            failures.push("a thread of the honest client has ended".into());
        }
        let watch = find_violation(&log.acknowledged, &log.received);
        Account { took: log.took, failures, lost: log.lost, watch, newcomers: log.newcomers }
    }
}

impl Log {
    fn is_behind(&self) -> bool {
        self.acknowledged.last().is_some_and(|last| !self.received.contains(last))
    }
}

/// Returns the error in the reported changes: each acknowledged change must be reported once and in
/// order. Other changes may be those of a request whose reply was lost.
fn find_violation(acknowledged: &[u64], received: &[u64]) -> Option<String> {
    if let Some(pair) = received.windows(2).find(|pair| pair[0] >= pair[1]) {
        return Some(format!("the watcher received {} after {}", pair[1], pair[0]));
    }
    let missing = acknowledged.iter().find(|change| received.binary_search(change).is_err())?;
    Some(format!("the watcher did not receive {missing}"))
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
                    // The value is the last field of a notification.
                    let text = String::from_utf8_lossy(&message.payload).into_owned();
                    let number = text.trim_end().rsplit("\r\n").next().map(str::parse);
                    let mut log = self.log();
                    match number {
                        Some(Ok(number)) => log.received.push(number),
                        _ => log.failures.push(format!("the watcher received {text:?}")),
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

    fn send_pairs(&self, mut line: Line) {
        let mut number = 0;
        let mut due = clock::now();
        while !self.is_over() {
            number += 1;
            if let Err(error) = self.pair(&mut line, number) {
                self.log().lost.push(error.to_string());
                match Line::open(&self.target, HONEST) {
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
            let connected = Line::open(&self.target, NEWCOMER)
                .and_then(|mut line| line.request(&[b"GET", b"honest/newcomer"]));
            let mut log = self.log();
            log.newcomers.0 += 1;
            log.newcomers.1 += usize::from(connected.is_err());
            drop(log);
            clock::pause(NEWCOMER_PACE);
        }
    }

    fn pair(&self, line: &mut Line, number: u64) -> io::Result<()> {
        let text = number.to_string();
        self.request(line, &[b"SET", KEY, text.as_bytes()], b"+OK\r\n")?;
        self.log().acknowledged.push(number);
        let expected = format!("${}\r\n{text}\r\n", text.len());
        self.request(line, &[b"GET", KEY], expected.as_bytes())
    }

    fn request(&self, line: &mut Line, words: &[&[u8]], expected: &[u8]) -> io::Result<()> {
        let begun = clock::now();
        let answer = line.request(words)?;
        let mut log = self.log();
        log.took.push((begun, clock::now() - begun));
        if answer != expected {
            let answer = String::from_utf8_lossy(&answer).into_owned();
            log.failures.push(format!("replied {answer:?}"));
        }
        Ok(())
    }
}

/// A connection that blocks.
struct Line {
    client_id: &'static str,
    client: Client<Box<dyn Stream>>,
    socket: TcpStream,
}

impl Line {
    fn open(target: &Target, client_id: &'static str) -> io::Result<Self> {
        let (stream, socket) = target.open(PATIENCE)?;
        let mut options = Client::<Box<dyn Stream>>::options(client_id);
        if let Some((name, password)) = &target.login {
            options = options.user(&**name).password(password.clone());
        }
        let connected = Client::connect(stream, options)?;
        let (client, _) = connected.map_err(io::Error::other)?;
        let mut line = Self { client_id, client, socket };
        let topic = packets::response_topic(client_id);
        line.client.subscribe(&topic, Qos::AtLeastOnce).map_err(io::Error::other)?;
        line.client.flush()?;
        match line.event()? {
            Event::Subscribed { .. } => Ok(line),
            other => Err(io::Error::other(format!("{other:?} instead of a SUBACK"))),
        }
    }

    /// Sends a request and waits for its response: the payload of the next message.
    fn request(&mut self, words: &[&[u8]]) -> io::Result<Vec<u8>> {
        let request = packets::owned_request(self.client_id, words);
        let sent = correlation(&request);
        self.client.publish(&request).map_err(io::Error::other)?;
        self.client.flush()?;
        let answer = self.message()?;
        let topic = packets::response_topic(self.client_id);
        if answer.topic != topic || correlation(&answer) != sent {
            let topic = &answer.topic;
            return Err(io::Error::other(format!("unexpected message on {topic:?}")));
        }
        Ok(answer.payload.to_vec())
    }

    /// The next message.
    fn message(&mut self) -> io::Result<Publish> {
        loop {
            match self.event()? {
                Event::Message(message) => return Ok(Publish::from(&message)),
                Event::Published { reason, .. } if !reason.is_error() => {}
                other => return Err(io::Error::other(format!("{other:?}"))),
            }
        }
    }

    fn event(&mut self) -> io::Result<Event> {
        self.client.next_event()?.ok_or_else(|| ErrorKind::UnexpectedEof.into())
    }
}

fn correlation(publish: &Publish) -> Option<Bytes> {
    publish.properties.as_ref()?.correlation_data.clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_must_be_reported_once_and_in_order() {
        assert_eq!(find_violation(&[1, 2, 4], &[1, 2, 4]), None);
        assert_eq!(find_violation(&[1, 2, 4], &[1, 2, 3, 4]), None, "the reply to 3 was lost");
        assert!(find_violation(&[1, 2], &[1]).is_some());
        assert!(find_violation(&[1, 2], &[1, 2, 2]).is_some());
        assert!(find_violation(&[1, 2], &[2, 1]).is_some());
    }
}
