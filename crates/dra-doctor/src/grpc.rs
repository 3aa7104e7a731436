//! One gRPC call over a UNIX socket, as grpc-go makes it for the kubelet's plugin manager.
//!
//! That one dials the socket's bare path, so its `:authority` is the path, percent-encoded. A server may refuse that, and no
//! HTTP library sends it: the same rule that makes servers refuse it is in the clients. So the few frames of the call are
//! written here. What comes back is only told apart; headers are not read.

use std::{io, path::Path, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::UnixStream,
};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 0x1;
const ACK: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
/// How much may be answered, in bytes.
const WINDOW: u32 = 16 << 20;
const STREAM: u32 = 1;
const INITIAL_WINDOW_SIZE: u16 = 4;

/// Why a call has no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    /// The socket cannot be connected to, or breaks off.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The server resets the call, with this code of HTTP/2.
    #[error("the server resets the call (HTTP/2 error {0})")]
    Reset(u32),
    /// The server answers with an error, or not as gRPC does.
    #[error("the server answers without a message")]
    NoMessage,
    /// Nothing comes.
    #[error("no answer within {} s", .0.as_secs())]
    TimedOut(Duration),
}

/// Calls a method, such as `/pluginregistration.Registration/GetInfo`, of the server at `socket`.
pub(crate) async fn call(
    socket: &Path,
    authority: &str,
    method: &str,
    message: &[u8],
    within: Duration,
) -> Result<Vec<u8>, CallError> {
    let call = async {
        let stream = UnixStream::connect(socket).await?;
        exchange(stream, authority, method, message).await
    };
    tokio::time::timeout(within, call).await.unwrap_or(Err(CallError::TimedOut(within)))
}

/// The authority that grpc-go makes of a path that is dialled as it is.
pub(crate) fn authority_of(path: &Path) -> String {
    let text = path.to_string_lossy();
    let encoded = text.bytes().map(|byte| {
        if byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:[]@".contains(&byte) {
            char::from(byte).to_string()
        } else {
            format!("%{byte:02X}")
        }
    });
    encoded.collect()
}

async fn exchange<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    authority: &str,
    method: &str,
    message: &[u8],
) -> Result<Vec<u8>, CallError> {
    stream.write_all(&request(authority, method, message)).await?;
    let mut body = Vec::new();
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let (kind, flags) = (head[3], head[4]);
        let of_call = u32::from_be_bytes([head[5] & 0x7f, head[6], head[7], head[8]]) == STREAM;
        let mut payload = vec![0; length as usize];
        stream.read_exact(&mut payload).await?;
        match kind {
            SETTINGS if flags & ACK == 0 => stream.write_all(&frame(SETTINGS, ACK, 0, &[])).await?,
            PING if flags & ACK == 0 => stream.write_all(&frame(PING, ACK, 0, &payload)).await?,
            GOAWAY => return Err(CallError::Reset(code(payload.get(4..8)))),
            RST_STREAM if of_call => return Err(CallError::Reset(code(payload.get(..4)))),
            DATA if of_call => body.extend_from_slice(without_padding(&payload, flags)),
            _ => {}
        }
        if of_call && matches!(kind, DATA | HEADERS) && flags & END_STREAM != 0 {
            return message_in(&body).ok_or(CallError::NoMessage);
        }
    }
}

fn request(authority: &str, method: &str, message: &[u8]) -> Vec<u8> {
    let mut headers = Vec::new();
    for (name, value) in [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", method),
        (":authority", authority),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ] {
        // A literal that neither side puts into its table.
        headers.push(0x10);
        headers.extend(text(name));
        headers.extend(text(value));
    }
    let mut body = vec![0];
    body.extend(u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes());
    body.extend(message);
    let mut settings = INITIAL_WINDOW_SIZE.to_be_bytes().to_vec();
    settings.extend(WINDOW.to_be_bytes());
    [
        PREFACE.to_vec(),
        frame(SETTINGS, 0, 0, &settings),
        frame(WINDOW_UPDATE, 0, 0, &WINDOW.to_be_bytes()),
        frame(HEADERS, END_HEADERS, STREAM, &headers),
        frame(DATA, END_STREAM, STREAM, &body),
    ]
    .concat()
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// A string of a header: its length in seven bits and more, and its bytes.
fn text(text: &str) -> Vec<u8> {
    const MOST: usize = 0x7f;
    let mut coded = Vec::new();
    let mut rest = text.len();
    if rest < MOST {
        coded.extend(u8::try_from(rest));
    } else {
        coded.push(0x7f);
        rest -= MOST;
        while rest >= 0x80 {
            coded.extend(u8::try_from(rest % 0x80 + 0x80));
            rest /= 0x80;
        }
        coded.extend(u8::try_from(rest));
    }
    coded.extend(text.bytes());
    coded
}

fn without_padding(payload: &[u8], flags: u8) -> &[u8] {
    if flags & PADDED == 0 {
        return payload;
    }
    let padding = payload.first().copied().map_or(0, usize::from);
    payload.get(1..payload.len().saturating_sub(padding)).unwrap_or_default()
}

/// The message behind the five bytes that gRPC puts before it.
fn message_in(body: &[u8]) -> Option<Vec<u8>> {
    let length = u32::from_be_bytes(body.get(1..5)?.try_into().ok()?);
    body.get(5..5 + length as usize).map(<[u8]>::to_vec)
}

fn code(bytes: Option<&[u8]>) -> u32 {
    bytes.and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_authority_is_the_path_as_grpc_go_encodes_it() {
        let authority =
            authority_of(Path::new("/var/lib/kubelet/plugins_registry/a b@gpu.example.com-reg.sock"));
        assert_eq!(authority, "%2Fvar%2Flib%2Fkubelet%2Fplugins_registry%2Fa%20b@gpu.example.com-reg.sock");
    }

    #[test]
    fn long_strings_have_long_lengths() {
        assert_eq!(text("ab"), [2, b'a', b'b']);
        assert_eq!(text(&"x".repeat(126))[..1], [126]);
        assert_eq!(text(&"x".repeat(127))[..2], [127, 0]);
        assert_eq!(text(&"x".repeat(127 + 200))[..3], [127, 0x80 + 72, 1]);
    }

    /// What a call comes to if the server sends these frames.
    async fn answered(frames: &[Vec<u8>]) -> Result<Vec<u8>, CallError> {
        let (ours, mut theirs) = tokio::io::duplex(1 << 16);
        theirs.write_all(&frames.concat()).await.unwrap();
        theirs.shutdown().await.unwrap();
        exchange(ours, "localhost", "/a.B/C", b"hello").await
    }

    #[tokio::test]
    async fn an_answer_is_put_together_from_its_frames() {
        let settings = frame(SETTINGS, 0, 0, &[]);
        let headers = frame(HEADERS, END_HEADERS, STREAM, b"not read");
        let trailers = frame(HEADERS, END_HEADERS | END_STREAM, STREAM, b"not read");
        let data = frame(DATA, PADDED, STREAM, &[1, 0, 0, 0, 0, 3, b'a', 0]);
        let more = frame(DATA, 0, STREAM, b"bc");
        let ping = frame(PING, 0, 0, &[7; 8]);
        let whole = [settings, headers.clone(), data, ping, more, trailers.clone()];
        assert_eq!(answered(&whole).await.unwrap(), b"abc");
        assert!(matches!(answered(&[trailers]).await, Err(CallError::NoMessage)));
        let reset = frame(RST_STREAM, 0, STREAM, &1_u32.to_be_bytes());
        assert!(matches!(answered(&[headers.clone(), reset]).await, Err(CallError::Reset(1))));
        let away = frame(GOAWAY, 0, 0, &[0, 0, 0, 0, 0, 0, 0, 2]);
        assert!(matches!(answered(&[away]).await, Err(CallError::Reset(2))));
        assert!(matches!(answered(&[headers]).await, Err(CallError::Io(_))), "it ends half-way");
    }
}
