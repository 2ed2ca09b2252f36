//! Limits the template language, so that no template takes unbounded time or memory.
//!
//! The engine's fuel counts steps, not bytes: a string times a number, `replace` or a recursive macro produce gigabytes
//! in a few steps. Only statements, operators and filters are allowed whose result is at most a small multiple of the
//! row. They are checked before the engine compiles the template, because the compiler evaluates constants.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use minijinja::machinery::{Span, Token, ast, parse, tokenize};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Rest, StringInput, Value, ValueKind, ValueOrKwargs};
use minijinja::{Environment, Error, ErrorKind, State, filters};

use ast::BinOpKind::{Add, Concat, Div, FloorDiv, Mul, Pow, Rem, Sub};
use ast::{CallArg, Expr, UnaryOpKind};

use super::display::printable_line;
use super::names::{self, TemplatePart};

/// The longest template and the longest text of a row, in bytes.
pub const MAX_SOURCE: usize = 64 * 1024;
/// The words of the available statements, less `raw`, which is text.
const STATEMENTS: [&str; 6] = ["if", "elif", "else", "endif", "for", "endfor"];
const FILTERS: &str = "abs, capitalize, count, d, default, first, float, format, int, join, last, length, lines, \
                       lower, replace, round, split, title, trim, upper";
/// Filters that return a number or fail.
const NUMERIC_FILTERS: [&str; 6] = ["abs", "count", "float", "int", "length", "round"];
/// Filters that split one string into a list.
const SPLITTING_FILTERS: [&str; 2] = ["lines", "split"];
/// A filter that fails for an undefined value; not available in texts.
const GUARD: &str = "defined";
/// How many values `~`, `+` and lists may join in one template.
const MAX_JOINED: usize = 64;
/// How many statements may begin a branch or a loop in one template. Each can contain the next.
const MAX_BRANCHES: usize = 100;
/// How many names, values and operators a placeholder or a statement may have, and how many brackets. Each can be an
/// operand of the next.
const MAX_TOKENS: usize = 256;
const MAX_BRACKETS: usize = 32;

/// The line and what is not allowed there.
type Checked = Result<(), String>;

/// Checks a template before it is compiled.
pub(super) fn check(source: &str) -> Result<CheckedTemplate, String> {
    check_tokens(source)?;
    let tree = parse(source, "", SyntaxConfig::default()).map_err(|error| with_line(&error))?;
    let (mut joined, mut slices) = (0, Vec::new());
    let names = names::find(&tree, &mut |node| match node {
        TemplatePart::Loop(each) => check_loop(each),
        TemplatePart::Expression(expression) => {
            joined += check_expression(expression)?;
            if joined > MAX_JOINED {
                let detail =
                    format!("more than {MAX_JOINED} values are joined by `~`, `+` and lists");
                return violation(expression.span(), detail);
            }
            if let Expr::Slice(slice) = expression {
                slices.push((slice.span(), &slice.expr));
            }
            Ok(())
        }
    })?;
    Ok(CheckedTemplate {
        names: names.into_iter().map(Arc::from).collect(),
        source: guard_slices(source, &slices)?,
    })
}

/// A checked template.
pub(super) struct CheckedTemplate {
    /// The names of the columns that it uses.
    pub(super) names: Vec<Arc<str>>,
    /// Its source as the engine gets it.
    pub(super) source: String,
}

/// Limits how deep the template nests: the parser and the compiler recurse, and are not called with more. What is not
/// a token is left to the parser.
fn check_tokens(source: &str) -> Checked {
    let (mut branches, mut length, mut brackets, mut begins_statement) = (0, 0, 0, false);
    for (token, span) in tokenize(source, false, SyntaxConfig::default()).map_while(Result::ok) {
        match token {
            Token::Ident(word) if begins_statement && !STATEMENTS.contains(&word) => {
                return violation(span, format!("`{{% {word} %}}` is not available in a template"));
            }
            Token::Ident("if" | "elif" | "for") if begins_statement => branches += 1,
            Token::VariableStart | Token::BlockStart => (length, brackets) = (0, 0),
            Token::ParenOpen | Token::BracketOpen | Token::BraceOpen => brackets += 1,
            _ => length += 1,
        }
        begins_statement = matches!(token, Token::BlockStart);
        for (count, most, of) in [
            (branches, MAX_BRANCHES, "`if`, `elif` and `for`"),
            (length, MAX_TOKENS, "names, values and operators in one place"),
            (brackets, MAX_BRACKETS, "brackets in one place"),
        ] {
            if count > most {
                return violation(span, format!("more than {most} {of}"));
            }
        }
    }
    Ok(())
}

/// Checks a loop. Its list must be a column or pieces of one: lists that are joined in the template would double in size
/// with every nested loop.
fn check_loop(each: &ast::ForLoop<'_>) -> Checked {
    let is_bounded = match &each.iter {
        Expr::Var(_) => true,
        Expr::Filter(filter) => SPLITTING_FILTERS.contains(&filter.name),
        _ => false,
    };
    if each.recursive || !is_bounded {
        return violation(
            each.iter.span(),
            "a loop needs a column or pieces of one: `{% for part in column | split(\",\") %}`",
        );
    }
    Ok(())
}

/// Checks an expression without its operands, and returns how many values it joins.
fn check_expression(expression: &Expr<'_>) -> Result<usize, String> {
    let refuse = |detail: &str| violation(expression.span(), detail);
    match expression {
        // The engine panics where an empty text has a negative one.
        Expr::Slice(slice) if slice.step.is_some() => {
            refuse("a part of a text cannot have a step: write `name[:3]`")?;
        }
        Expr::BinOp(operation) if matches!(operation.op, Mul) && !is_number(expression) => {
            refuse("`*` needs a number on both sides: `price | float * 2`")?;
        }
        Expr::Filter(filter) if FILTERS.split(", ").all(|known| known != filter.name) => {
            let detail = format!("unknown filter `{}`: known are {FILTERS}", filter.name);
            refuse(&detail)?;
        }
        Expr::Call(_) => refuse("a template cannot call functions")?,
        Expr::Map(_) => refuse("`{…: …}` is not available in a template")?,
        _ => {}
    }
    Ok(match expression {
        Expr::BinOp(operation) => match operation.op {
            Concat => 1,
            Add if !is_number(expression) => 1,
            _ => 0,
        },
        Expr::List(list) => list.items.len(),
        Expr::Tuple(tuple) => tuple.items.len(),
        _ => 0,
    })
}

/// Returns the source with [`GUARD`] applied to what slices cut: the engine makes a list of a part of an undefined value.
fn guard_slices(source: &str, slices: &[(Span, &Expr<'_>)]) -> Result<String, String> {
    let (mut open, mut opened_at) = (Vec::new(), BTreeMap::new());
    for (token, span) in tokenize(source, false, SyntaxConfig::default()).map_while(Result::ok) {
        match token {
            Token::BracketOpen => open.push(span.start_offset),
            Token::BracketClose => {
                opened_at.extend(open.pop().map(|start| (span.end_offset, start)));
            }
            _ => {}
        }
    }
    let mut inserted = BTreeMap::new();
    for (span, cut) in slices {
        // Its operand begins there, unless that is followed by `[…]` or `.name` before.
        let start = span.start_offset as usize;
        let is_whole = source[start..].starts_with('(');
        let Some(bracket) = opened_at.get(&span.end_offset) else {
            return violation(*span, "a part of a text needs `[` and `]`");
        };
        match cut {
            // It was guarded, and its part is a text.
            Expr::Slice(_) if !is_whole => {}
            Expr::GetItem(_) | Expr::GetAttr(_) if !is_whole => {
                return violation(*span, "put `(` and `)` around what `[:]` takes a part of");
            }
            _ => {
                // With `(`, it would be the arguments of a test: `is startingwith name[:1]`.
                inserted.insert(start, "[".to_owned());
                inserted.insert(*bracket as usize, format!(" | {GUARD}][0]"));
            }
        }
    }
    let (mut guarded, mut copied) = (String::with_capacity(source.len()), 0);
    for (at, text) in inserted {
        guarded += &source[copied..at];
        guarded += &text;
        copied = at;
    }
    Ok(guarded + &source[copied..])
}

fn violation<T>(span: Span, detail: impl fmt::Display) -> Result<T, String> {
    Err(format!("line {}: {detail}", span.start_line))
}

/// Whether the value is a number for every row.
fn is_number(expression: &Expr<'_>) -> bool {
    match expression {
        Expr::Const(constant) => constant.value.kind() == ValueKind::Number,
        Expr::UnaryOp(operation) => {
            matches!(operation.op, UnaryOpKind::Neg) && is_number(&operation.expr)
        }
        Expr::BinOp(operation) => {
            let keeps_numbers =
                matches!(operation.op, Add | Sub | Mul | Div | FloorDiv | Rem | Pow);
            keeps_numbers && is_number(&operation.left) && is_number(&operation.right)
        }
        // A default among the arguments may be returned as it is.
        Expr::Filter(filter) => {
            NUMERIC_FILTERS.contains(&filter.name)
                && filter.args.iter().all(|argument| match argument {
                    CallArg::Pos(value) | CallArg::Kwarg(_, value) => is_number(value),
                    CallArg::PosSplat(_) | CallArg::KwargSplat(_) => false,
                })
        }
        _ => false,
    }
}

/// Replaces the built-in filters whose result has no limit.
pub(super) fn add_filters(environment: &mut Environment<'static>) {
    environment.add_filter(GUARD, |value: &Value| defined(value).cloned());
    environment.add_filter("format", format);
    environment.add_filter("join", join);
    environment.add_filter("lines", |text: &Value| filters::lines(short(text)?));
    environment.add_filter("replace", replace);
    environment.add_filter(
        "split",
        |text: &Value, separator: Option<Arc<str>>, limit: Option<i64>| {
            filters::split(short(text)?, separator, limit)
        },
    );
}

fn replace(state: &State, text: &Value, from: &Value, to: &Value) -> Result<String, Error> {
    let [text, from, to] = [text, from, to].map(|value| StringInput::new(state, value));
    let (text, from, to) = (text?, from?, to?);
    let (text, from, to) = (text.as_str(), from.as_str(), to.as_str());
    let growth = to.len().saturating_sub(from.len());
    let growth = text.matches(from).count().saturating_mul(growth);
    check_length(text.len().saturating_add(growth))?;
    Ok(text.replace(from, to))
}

fn join(items: &Value, separator: Option<&str>) -> Result<String, Error> {
    let mut text = String::new();
    for (at, item) in defined(items)?.try_iter()?.enumerate() {
        let item = match defined(&item)?.as_str() {
            Some(item) => Cow::Borrowed(item),
            None => Cow::Owned(item.to_string()),
        };
        let separator = separator.filter(|_| at > 0).unwrap_or_default();
        check_length(text.len() + separator.len() + item.len())?;
        text += separator;
        text += &item;
    }
    Ok(text)
}

/// Fails for widths of three digits, for widths from a value, and for named values, which can be used several
/// times.
fn format(
    state: &mut State<'_, '_>,
    pattern: &Value,
    values: Rest<ValueOrKwargs>,
) -> Result<Value, Error> {
    let text = pattern.as_str().unwrap_or_default();
    let is_bounded = text.split('%').skip(1).all(|rest| {
        let spec = rest.split(char::is_alphabetic).next().unwrap_or_default();
        let mut widths = spec.split(|c: char| !c.is_ascii_digit());
        !spec.contains(['*', '(']) && widths.all(|width| width.len() < 3)
    });
    if !is_bounded {
        let detail = "`format` takes values in order, and widths below 100";
        return Err(Error::new(ErrorKind::InvalidOperation, detail));
    }
    filters::format(state, pattern, values)
}

/// The value, unless it is undefined or a text that would be split into too many pieces.
fn short(value: &Value) -> Result<&Value, Error> {
    check_length(defined(value)?.as_str().map_or(0, str::len))?;
    Ok(value)
}

fn defined(value: &Value) -> Result<&Value, Error> {
    if value.is_undefined() || value.is_none() {
        return Err(ErrorKind::UndefinedError.into());
    }
    Ok(value)
}

fn check_length(length: usize) -> Result<(), Error> {
    if length > MAX_SOURCE {
        return Err(ErrorKind::WriteFailure.into());
    }
    Ok(())
}

/// Describes an error of the engine and its line.
pub(super) fn with_line(error: &Error) -> String {
    format!("line {}: {}", error.line().unwrap_or(1), detail(error))
}

pub(super) fn detail(error: &Error) -> String {
    // It may have parts of the template.
    match error.detail().map(printable_line) {
        _ if error.kind() == ErrorKind::WriteFailure => text_too_long(),
        Some(detail) if error.kind() == ErrorKind::SyntaxError => detail.into_owned(),
        Some(detail) => format!("{}: {detail}", error.kind()),
        None => error.kind().to_string(),
    }
}

pub(super) fn text_too_long() -> String {
    format!("the text is longer than {} KiB", MAX_SOURCE / 1024)
}
