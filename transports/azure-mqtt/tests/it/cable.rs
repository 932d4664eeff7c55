//! Connections to a broker that a test can cut, while the broker keeps the sessions.

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// A listener that forwards each connection to a broker.
pub(crate) struct Cable {
    port: u16,
    connections: Arc<Mutex<JoinSet<()>>>,
    accepting: JoinHandle<()>,
}

impl Cable {
    /// Forwards to a port of this machine.
    pub(crate) async fn to(broker: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let port = listener.local_addr().expect("its address").port();
        let connections = Arc::new(Mutex::new(JoinSet::new()));
        let accepted = Arc::clone(&connections);
        let accepting = tokio::spawn(async move {
            loop {
                let (mut near, _) = listener.accept().await.expect("a connection");
                accepted.lock().expect("no panic").spawn(async move {
                    let far = TcpStream::connect((Ipv4Addr::LOCALHOST, broker)).await;
                    let mut far = far.expect("the broker listens");
                    for stream in [&near, &far] {
                        stream.set_nodelay(true).expect("a socket");
                    }
                    let _ = copy_bidirectional(&mut near, &mut far).await;
                });
            }
        });
        Self { port, connections, accepting }
    }

    /// The port on 127.0.0.1.
    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    /// Ends all connections, and accepts new ones.
    pub(crate) fn cut(&self) {
        self.connections.lock().expect("no panic").abort_all();
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}
