"""The web console: pages that a server makes of the typed results, for people with a browser.

`watch` asks the cluster again and again and keeps the figures of the last minutes; the modules of pages (`overview`,
`topics`, `groups`, …) make one struct for each page, and register what they change; `site` makes HTML or JSON of it;
`guard` lets in whom the printed address was given to, and nobody else; `server` listens. The browser runs one script,
which only fetches a page again and sorts and filters tables: everything can be read without it. Only the command
imports this package, because it brings Starlette, uvicorn and Jinja2. Invariant: what is not known is shown as ``?``,
never as 0.
"""
