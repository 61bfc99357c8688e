//! `--metrics`: a page of text for Prometheus over HTTP/1.1. One path, no keep-alive, one connection at a
//! time: a scrape each few seconds is all it is for, and nobody may keep it busy for longer than a moment.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result};

/// The longest head of a request that is read.
const HEAD_BYTES_MAX: usize = 8192;
/// How long a client may take to say what it wants, and to take the answer.
const PATIENCE_NS: u64 = 2_000_000_000;

/// An address and a port, or a port of the loopback interface.
///
/// # Errors
/// A sentence for clap to show.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    let port = text.strip_prefix(':').unwrap_or(text);
    if let Ok(port) = port.parse() {
        return Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
    }
    text.parse().map_err(|_| format!("`{text}` is not an address; write 127.0.0.1:9100, [::1]:9100 or 9100"))
}

/// Listens.
///
/// # Errors
/// The address is in use or not this machine's.
pub fn listen(at: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(at).with_context(|| format!("metrics cannot be served at {at}"))
}

/// Answers requests, each with a page made for it, as long as the process lives.
pub fn serve(listener: &TcpListener, page: impl Fn() -> String) {
    for mut stream in listener.incoming().flatten() {
        // A client that went away or fell silent has nothing to be told.
        let _ = answer(&mut stream, &page);
    }
}

fn answer(stream: &mut TcpStream, page: impl Fn() -> String) -> std::io::Result<()> {
    stream.set_write_timeout(Some(Duration::from_nanos(PATIENCE_NS)))?;
    let head = read_head(stream)?;
    let (status, more, body) = match Request::of(&head) {
        Request::Metrics => ("200 OK", "", page()),
        Request::Elsewhere => ("404 Not Found", "", "the counters are at /metrics\n".to_owned()),
        Request::OtherMethod => {
            ("405 Method Not Allowed", "Allow: GET, HEAD\r\n", "only GET and HEAD\n".to_owned())
        }
        Request::Malformed => ("400 Bad Request", "", "not an HTTP/1 request\n".to_owned()),
    };
    let length = body.len();
    let mut answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {length}\r\n{more}\
         Connection: close\r\n\r\n"
    );
    if !head.starts_with(b"HEAD ") {
        answer.push_str(&body);
    }
    stream.write_all(answer.as_bytes())
}

/// The request's head, or as much of it as came in time and fits.
fn read_head(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let until = amphi_rt::time::now_ns() + PATIENCE_NS;
    let mut head = Vec::new();
    let mut part = [0; 1024];
    while head.len() < HEAD_BYTES_MAX && !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let left = until.saturating_sub(amphi_rt::time::now_ns());
        if left == 0 {
            break;
        }
        stream.set_read_timeout(Some(Duration::from_nanos(left)))?;
        match stream.read(&mut part)? {
            0 => break,
            bytes => head.extend_from_slice(&part[..bytes]),
        }
    }
    Ok(head)
}

#[derive(Debug, PartialEq, Eq)]
enum Request {
    Metrics,
    Elsewhere,
    OtherMethod,
    Malformed,
}

impl Request {
    fn of(head: &[u8]) -> Self {
        let line = head.split(|&byte| byte == b'\r').next().unwrap_or_default();
        let Ok(line) = std::str::from_utf8(line) else { return Self::Malformed };
        let words: Vec<_> = line.split(' ').collect();
        let [method, path, version] = words[..] else { return Self::Malformed };
        if !version.starts_with("HTTP/1.") || !head.windows(4).any(|end| end == b"\r\n\r\n") {
            return Self::Malformed;
        }
        match (method, path.split('?').next()) {
            ("GET" | "HEAD", Some("/metrics")) => Self::Metrics,
            ("GET" | "HEAD", _) => Self::Elsewhere,
            _ => Self::OtherMethod,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_the_loopback_interface() {
        let loopback = Ok("127.0.0.1:9100".parse().expect("an address"));
        assert_eq!(
            (address("9100"), address(":9100"), address("127.0.0.1:9100")),
            (loopback.clone(), loopback.clone(), loopback)
        );
        assert_eq!(address("[::1]:80"), Ok("[::1]:80".parse().expect("an address")));
        for bad in ["", "localhost", "1.2.3.4", "70000", "host:1"] {
            assert!(address(bad).is_err_and(|error| error.contains("is not an address")), "{bad}");
        }
    }

    #[test]
    fn requests_are_told_apart() {
        let of = |head: &str| Request::of(head.as_bytes());
        assert_eq!(of("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"), Request::Metrics);
        assert_eq!(of("HEAD /metrics?x=1 HTTP/1.0\r\n\r\n"), Request::Metrics);
        assert_eq!(of("GET / HTTP/1.1\r\n\r\n"), Request::Elsewhere);
        assert_eq!(of("POST /metrics HTTP/1.1\r\n\r\n"), Request::OtherMethod);
        for bad in
            ["", "GET /metrics", "GET /metrics HTTP/2\r\n\r\n", "GET /metrics HTTP/1.1\r\nHost: cut off"]
        {
            assert_eq!(of(bad), Request::Malformed, "{bad:?}");
        }
        assert_eq!(Request::of(b"\xff\xfe / HTTP/1.1\r\n\r\n"), Request::Malformed);
    }
}
