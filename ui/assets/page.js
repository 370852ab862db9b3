// Shows what is new on the page, by fetching it again. Without this script, a reload does the same.
'use strict';

const every = Number(document.body.dataset.refresh);
const lost = document.getElementById('lost');

async function refresh() {
	if (!document.hidden && getSelection().isCollapsed) {
		try {
			const reply = await fetch(location.href, {cache: 'no-store', signal: AbortSignal.timeout(5000)});
			const next = new DOMParser().parseFromString(await reply.text(), 'text/html').getElementById('live');
			show(next); // throws if it is another page: of a proxy, or a login
			lost.hidden = true;
		} catch {
			lost.hidden = false;
			document.getElementById('live').classList.add('old', 'lost');
		}
	}
	setTimeout(refresh, every);
}

// show replaces what is shown. What was open stays open, and what had the focus has it again.
function show(next) {
	const live = document.getElementById('live');
	const href = live.contains(document.activeElement) && document.activeElement.getAttribute('href');
	for (const details of next.querySelectorAll('details')) {
		details.open = document.getElementById(details.id)?.open;
	}
	live.replaceWith(next);
	if (href) {
		next.querySelector(`[href="${CSS.escape(href)}"]`)?.focus({preventScroll: true});
	}
}

if (every > 0 && document.getElementById('live')) {
	setTimeout(refresh, every);
}
