//! Unary gRPC calls, and the part of protocol buffers that the calls to etcd need.

use std::net::Ipv4Addr;

use bytes::{Buf as _, Bytes, BytesMut};
use h2::client::SendRequest;
use http::{Method, Request};
use tokio::net::TcpStream;

use super::Failure;

/// An HTTP/2 connection to an etcd on this machine.
#[derive(Clone)]
pub(super) struct Connection(SendRequest<Bytes>);

impl Connection {
    pub(super) async fn open(port: u16) -> Result<Self, Failure> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
        stream.set_nodelay(true)?;
        // Hundreds of small responses can wait to be read.
        let (requests, connection) =
            h2::client::Builder::new().data_frame_budget(1 << 24).handshake(stream).await?;
        tokio::spawn(connection);
        Ok(Self(requests))
    }

    /// Sends a message and returns the response.
    pub(super) async fn call(self, method: &str, message: &Message) -> Result<Bytes, Failure> {
        let request = Request::builder()
            .method(Method::POST)
            .uri(format!("http://127.0.0.1/etcdserverpb.{method}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(())?;
        let (response, mut body) = self.0.ready().await?.send_request(request, false)?;
        body.send_data(message.framed()?, true)?;
        let response = response.await?;
        let mut status = response.headers().get("grpc-status").cloned();
        let mut body = response.into_body();
        let mut response_bytes = BytesMut::new();
        while let Some(data) = body.data().await {
            let data = data?;
            body.flow_control().release_capacity(data.len())?;
            response_bytes.extend_from_slice(&data);
        }
        if let Some(trailers) = body.trailers().await? {
            status = trailers.get("grpc-status").cloned().or(status);
        }
        match status {
            Some(status) if status == "0" && response_bytes.len() >= FRAME_LEN => {
                response_bytes.advance(FRAME_LEN);
                Ok(response_bytes.freeze())
            }
            status => Err(format!("call to etcd failed: status {status:?}").into()),
        }
    }
}

/// Length of a frame header: a flag and the length of the message.
const FRAME_LEN: usize = 5;

/// A message of protocol buffers.
#[derive(Debug, Default)]
pub(super) struct Message(Vec<u8>);

impl Message {
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Appends a field that is bytes, a string or a message.
    pub(super) fn bytes(mut self, field: u8, bytes: &[u8]) -> Self {
        self.0.push(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    /// Appends a field that is a number.
    pub(super) fn number(mut self, field: u8, number: u64) -> Self {
        self.0.push(field << 3);
        self.varint(number);
        self
    }

    fn varint(&mut self, mut number: u64) {
        while number > 0x7f {
            self.0.push((number & 0x7f) as u8 | 0x80);
            number >>= 7;
        }
        self.0.push((number & 0x7f) as u8);
    }

    /// Returns the gRPC frame of the message, without compression.
    fn framed(&self) -> Result<Bytes, Failure> {
        let length = u32::try_from(self.0.len())?;
        Ok([&[0][..], &length.to_be_bytes(), &self.0].concat().into())
    }
}

/// Fields of a received message.
pub(super) mod fields {
    use super::Failure;

    enum Field<'a> {
        Number(u64),
        Bytes(&'a [u8]),
    }

    /// Returns the first field with this tag, if it is a number.
    pub(in crate::engines) fn number(message: &[u8], field: u64) -> Result<Option<u64>, Failure> {
        Ok(match find(message, field)? {
            Some(Field::Number(number)) => Some(number),
            _ => None,
        })
    }

    /// Returns the first field with this tag, if it is bytes.
    pub(in crate::engines) fn bytes(message: &[u8], field: u64) -> Result<Option<&[u8]>, Failure> {
        Ok(match find(message, field)? {
            Some(Field::Bytes(bytes)) => Some(bytes),
            _ => None,
        })
    }

    fn find(mut message: &[u8], wanted: u64) -> Result<Option<Field<'_>>, Failure> {
        while !message.is_empty() {
            let tag = varint(&mut message)?;
            let field = match tag & 7 {
                0 => Field::Number(varint(&mut message)?),
                2 => {
                    let length = usize::try_from(varint(&mut message)?)?;
                    let (bytes, rest) =
                        message.split_at_checked(length).ok_or("truncated message")?;
                    message = rest;
                    Field::Bytes(bytes)
                }
                other => return Err(format!("unknown wire type {other}").into()),
            };
            if tag >> 3 == wanted {
                return Ok(Some(field));
            }
        }
        Ok(None)
    }

    fn varint(message: &mut &[u8]) -> Result<u64, Failure> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = message.split_first().ok_or("truncated message")?;
            *message = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err("varint exceeds 64 bits".into())
    }
}
